"""Runs a function in several processes that are ranks of one group, on loopback.

    python on_ranks.py FILE FUNCTION WORLD ARGUMENT FOLDER

It imports everything once and forks. Rank r calls `FUNCTION(argument, folder)` of the file; what
it returns goes to FOLDER/r.json. All are killed when they take too long, so this ends by itself.
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
from pathlib import Path
from typing import Any

LIMIT = 120  # seconds


def on_ranks(function: Any, world: int, argument: Any, folder: Path, fails: bool = False) -> Any:
    """What each of `world` ranks returned; where they must fail, exit codes and what was said."""
    folder.mkdir(parents=True, exist_ok=True)
    file = inspect.getfile(function)
    command = [sys.executable, __file__, file, function.__name__, str(world)]
    done = subprocess.run(
        [*command, json.dumps(argument), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=LIMIT + 30,
    )
    if fails:
        return json.loads(done.stdout), done.stderr
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def free_port() -> int:
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return int(here.getsockname()[1])


def main() -> None:
    file, name, world = sys.argv[1], sys.argv[2], int(sys.argv[3])
    argument, folder = json.loads(sys.argv[4]), Path(sys.argv[5])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    spec = importlib.util.spec_from_file_location("job", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    os.environ |= {"WORLD_SIZE": str(world)}
    children = [_child(getattr(module, name), argument, folder, rank) for rank in range(world)]
    codes: dict[int, int] = {}
    end = time.monotonic() + LIMIT
    while len(codes) < world and time.monotonic() < end:
        for rank, pid in enumerate(children):
            ended, status = (0, 0) if rank in codes else os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for rank, pid in enumerate(children):
        if rank not in codes:
            print(f"rank {rank} did not end in {LIMIT} s", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            codes[rank] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps([codes[rank] for rank in range(world)]))
    sys.exit(any(codes.values()))


def _child(function: Any, argument: Any, folder: Path, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    code = 0
    try:
        made = function(argument, folder)
        (folder / f"{rank}.json").write_text(json.dumps(made))
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
