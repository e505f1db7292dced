"""A program that lets three processes work on one study and kills the first of them.

    python three_workers.py FOLDER STORAGE

It imports everything once and forks, so that the workers begin within milliseconds. Every training
takes a little longer than it needs, so that there is a time to kill in: when the first worker is in
the second fold of a trial. Prints, for each worker, the trainings that it began, and the outcomes
of those that lived.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

from forked import forked
from protocols.mlrc.tiny_study import tiny_study
from proxysynth.protocols.mlrc import run_study, search
from proxysynth.training import Resources

train = search.train


def work(folder: Path, storage: str | None, log: Path) -> None:
    def slow(run, place, **more):
        with log.open("a") as file:
            file.write(f"{place}\n")
        time.sleep(0.1)
        return train(run, place, **more)

    search.train = slow
    study = tiny_study(trials=5, repetitions=2)
    machine = Resources(threads=1, workers=0)
    told = asdict(run_study(study, folder, storage=storage, resources=machine))
    del told["study"]
    log.with_suffix(".json").write_text(json.dumps(told))


def main() -> None:
    folder, storage = Path(sys.argv[1]), sys.argv[2] or None
    logs = [folder.parent / f"worker{i}.log" for i in range(3)]
    for log in logs:
        log.touch()
    children = [forked(partial(work, folder, storage, log)) for log in logs]
    while not logs[0].read_text().endswith("fold1\n"):
        time.sleep(0.01)
        if os.waitpid(children[0], os.WNOHANG)[0]:
            sys.exit("the first worker ended too soon")
    os.kill(children[0], signal.SIGKILL)
    ends = [os.waitpid(pid, 0)[1] for pid in children]
    if not os.WIFSIGNALED(ends[0]) or any(ends[1:]):
        sys.exit(f"the workers ended with {ends}")
    told = [log.with_suffix(".json") for log in logs]
    outcomes = [json.loads(path.read_text()) for path in told if path.exists()]
    began = [log.read_text().splitlines() for log in logs]
    print(json.dumps({"began": began, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
