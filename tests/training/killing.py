"""A program that trains a run in child processes and kills them at random moments.

    python killing.py RUN.JSON FOLDER KILLS SEED

It imports everything once and forks, so that a child is training within milliseconds. A run that
finishes before enough children were killed is followed by the same run in another folder. Prints
the folders, each finished, and how many children were killed in each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from forked import forked
from proxysynth.training import KINDS, Resources, read_result, train
from proxysynth.values import decode


def main() -> None:
    run = decode(json.loads(Path(sys.argv[1]).read_text()), KINDS)
    base, kills, draw = Path(sys.argv[2]), int(sys.argv[3]), random.Random(int(sys.argv[4]))
    resources = Resources(workers=2, threads=1, checkpoint_steps=2)

    def child(folder: Path) -> int:
        return forked(lambda: train(run, folder, resources=resources))

    whole = 0.0
    for name in ("unbroken", "again"):  # the second one has its time taken, with warm caches
        start = time.perf_counter()
        if os.waitpid(child(base / name), 0)[1]:
            sys.exit("the unbroken run failed")
        whole = time.perf_counter() - start
    killed, counts = 0, []
    while killed < kills:
        folder, here = base / f"broken{len(counts)}", 0
        while read_result(folder) is None:
            pid = child(folder)
            if killed < kills:
                # A child may end before it has done anything, or get through a part of the run.
                time.sleep(draw.uniform(0, whole / 2))
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            if os.WIFSIGNALED(status):
                killed, here = killed + 1, here + 1
            elif status:
                sys.exit(f"a child failed after {killed} kills")
        counts.append(here)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
