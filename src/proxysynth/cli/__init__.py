"""The command line: it runs one verb and says how it ended. The verbs stand in `options.py`.

Results go to standard output, everything else to standard error. With `--json` the last line of
standard output is one JSON object and nothing else stands there.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from proxysynth.cli.parser import UsageError, parser

USAGE, FAILED, INTERRUPTED = 2, 1, 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 asked for wrongly."""
    warnings.showwarning = _warn
    try:
        args = parser().parse_args(argv)
    except UsageError as error:
        # Under torchrun all ranks got the same words: one of them is enough to say so.
        _end(error, USAGE, said=os.environ.get("RANK", "0") == "0")
    try:
        if args.run_verb is None:
            args.print_help(sys.stderr)
            sys.exit(0)
        if args.computes:
            _share_the_machine()
        module, _, function = args.run_verb.partition(":")
        result = getattr(importlib.import_module(module), function)(args)
    except UsageError as error:
        _end(error, USAGE)
    except (ValueError, OSError, RuntimeError) as error:
        _end(error, FAILED)
    except MemoryError:
        _end("the memory does not suffice: use smaller batches or blocks, or free some", FAILED)
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on", INTERRUPTED)
    if result is not None and args.json:
        try:
            print(json.dumps(result), flush=True)
        except BrokenPipeError:  # whoever read it has seen enough
            _drop_output()
        except OSError as error:
            _drop_output()
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            _end(f"cannot write the result to standard output ({reason}): make room", FAILED)
    sys.exit(0)


def _end(message: object, code: int, said: bool = True) -> NoReturn:
    if said:
        print(f"proxysynth: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(code)


def _drop_output() -> None:
    """What is still to be written goes nowhere: at the end, Python would try again and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn(message: object, *_: object, **__: object) -> None:
    print(f"proxysynth: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _share_the_machine() -> None:
    """Let waiting threads sleep, unless the user has said how they should wait.

    Where other programs use the processors too, threads that wait busily for each other can make
    training of a small network many times slower. Must be said before torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
