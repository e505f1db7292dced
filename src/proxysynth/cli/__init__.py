"""The command line: `main` runs one command and exits.

Results go to standard output, everything else to standard error. With `--json`, standard output
holds one JSON object and nothing else. Exit status: 0 success, 1 failure, 2 wrong usage, 130
interrupted (of a training: 143 by SIGTERM, 129 by SIGHUP).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from proxysynth.cli.parser import UsageError, parser
from proxysynth.errors import reason
from proxysynth.formatting import printable
from proxysynth.memory import keep_freed_memory

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in `argv` (default: the process's arguments) and exit."""
    own_process = argv is None
    argv = sys.argv[1:] if argv is None else argv
    show_traceback = "--traceback" in argv
    warnings.showwarning = print_warning
    try:
        args = parser().parse_args(argv)
    except UsageError as error:
        # Under torchrun every rank got the same arguments: one message is enough.
        if os.environ.get("RANK", "0") != "0":
            sys.exit(USAGE)
        _exit(error, USAGE, show_traceback)
    try:
        if args.function is None:
            args.print_help(sys.stderr)
            sys.exit(0)
        if args.computes and own_process:  # a library must not change these settings
            # Threads that busy-wait for each other make a small network many times slower where
            # other programs use the processors too. OpenMP reads this when torch is imported.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            keep_freed_memory()
        module, _, function = args.function.partition(":")
        result = getattr(importlib.import_module(module), function)(args)
        if result is not None and args.json:
            print_json(result)
    except UsageError as error:
        _exit(error, USAGE, show_traceback)
    except BrokenPipeError:  # the reader of standard output is gone, such as `| head`
        _discard_output()
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        # torch has an exception of its own for GPUs, and none for CPUs.
        memory = "out of memory" in str(error) or "can't allocate memory" in str(error)
        if memory or isinstance(error, MemoryError):
            advice = "use a smaller batch_size, image_size or backbone, or free some memory"
            _exit(f"out of memory: {advice}", FAILED, show_traceback)
        _exit(error, FAILED, show_traceback)
    except KeyboardInterrupt as error:
        status = getattr(error, "status", INTERRUPTED)  # of another signal
        _exit("interrupted; run the same command to resume", status)
    sys.exit(0)


def _exit(message: object, status: int, show_traceback: bool = False) -> NoReturn:
    if show_traceback:
        traceback.print_exc()
    print(f"proxysynth: {printable(' '.join(str(message).split()))}", file=sys.stderr)
    sys.exit(status)


def print_json(result: object) -> None:
    """Print the result as one line."""
    try:
        print(json.dumps(result, allow_nan=False), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        text = f"cannot write the result to standard output ({reason(error)})"
        raise RuntimeError(text) from error


def _discard_output() -> None:
    """Redirect standard output to the null device, or Python would write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_warning(message: object, *_: object, **__: object) -> None:
    text = printable(" ".join(str(message).split()))
    print(f"proxysynth: warning: {text}", file=sys.stderr)
