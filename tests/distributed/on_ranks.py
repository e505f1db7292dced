"""Runs functions in groups of processes that are ranks of each other, by gloo on loopback.

    python on_ranks.py FILE FOLDER GROUPS

GROUPS is JSON, [[function, world, argument], ...], one group after the other. The program imports
everything once and forks. Rank r of group g calls `function(argument, folder)` of the file; what it
returns and prints is in FOLDER/g. A group that takes too long is killed, so this ends.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 120  # seconds for a group
Job = Callable[[Any, Path], Any]


class Ended(NamedTuple):
    """How the ranks of a group ended."""

    codes: list[int]
    returned: list[Any]
    stdout: str
    stderr: str


def groups(jobs: list[tuple[Job, int, Any]], folder: Path) -> list[Ended]:
    """Each function of one file on so many ranks, with an argument that JSON can hold."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [(function.__name__, world, argument) for function, world, argument in jobs]
    command = [sys.executable, __file__, inspect.getfile(jobs[0][0]), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, json.dumps(asked)], check=False, env=environment)
    assert done.returncode == 0
    ended = []
    for number, (_, world, _) in enumerate(jobs):
        place = folder / str(number)
        files = [place / f"{rank}.json" for rank in range(world)]
        ended.append(
            Ended(
                json.loads((place / "codes").read_text()),
                [json.loads(file.read_text()) if file.exists() else None for file in files],
                (place / "out").read_text(),
                (place / "err").read_text(),
            )
        )
    return ended


def on_ranks(function: Job, world: int, argument: Any, folder: Path) -> list[Any]:
    """What a function returned on each rank of one group, none of which may fail."""
    ended = groups([(function, world, argument)], folder)[0]
    assert ended.codes == [0] * world, ended.stderr
    return ended.returned


def main() -> None:
    file, folder, jobs = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    spec = importlib.util.spec_from_file_location("job", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import torch._dynamo  # noqa: F401  what each child's optimizer would load, once for all

    from proxysynth.distributed import process_group

    process_group.LINGER = 1.0  # with no torchrun and on one machine, the others ask at once

    for number, (name, world, argument) in enumerate(jobs):
        place = folder / str(number)
        place.mkdir()
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        os.environ["WORLD_SIZE"] = str(world)
        function = getattr(module, name)
        children = [_child(function, argument, folder, place, rank) for rank in range(world)]
        (place / "codes").write_text(json.dumps(_wait(children)))


def _wait(children: list[int]) -> list[int]:
    codes: dict[int, int] = {}
    end = time.monotonic() + LIMIT
    while len(codes) < len(children):
        late = time.monotonic() > end
        for pid in children:
            if pid not in codes and late:
                os.kill(pid, signal.SIGKILL)
            ended, status = (0, 0) if pid in codes else os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return [codes[pid] for pid in children]


def _child(function: Job, argument: Any, folder: Path, place: Path, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for handle, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), handle)
        made = function(argument, folder)
        (place / f"{rank}.json").write_text(json.dumps(made))
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


def _free_port() -> int:
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return int(here.getsockname()[1])


if __name__ == "__main__":
    main()
