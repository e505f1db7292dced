"""The command line: verbs and their options. What they do lives elsewhere, imported when asked for.

Results go to standard output, everything else to standard error. With `--json` the last line of
standard output is one JSON object and nothing else stands there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from proxysynth import __version__
from proxysynth.values import nearest

USAGE, FAILED = 2, 1


class UsageError(ValueError):
    """The command's words are off: exit 2."""


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line that says what to do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 asked for wrongly."""
    try:
        args = parser().parse_args(argv)
        result = args.verb(args)
    except UsageError as error:
        _end(error, USAGE)
    except (ValueError, OSError, RuntimeError) as error:
        _end(error, FAILED)
    except KeyboardInterrupt:
        _end("interrupted", 130)
    else:
        if result is not None and args.json:
            print(json.dumps(result), flush=True)
        sys.exit(0)


def _end(message: object, code: int) -> NoReturn:
    print(f"proxysynth: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(code)


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="proxysynth", description="Deep metric learning for unseen classes.")
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    verbs = top.add_subparsers(metavar="VERB", parser_class=Parser)
    top.set_defaults(verb=lambda args: top.print_help(sys.stderr), json=False)
    _bench_parser(verbs)
    return top


def _bench_parser(verbs: Any) -> None:
    from proxysynth.bench import BENCHES

    told = "; ".join(f"{name}: {what}" for name, what in BENCHES.items())
    bench = verbs.add_parser("bench", help="measure speed and memory against peers", epilog=told)
    bench.add_argument("names", nargs="*", default=["all"], metavar="NAME")
    bench.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    bench.add_argument("--save", type=Path, metavar="DIR", help="write CSV files there")
    bench.add_argument("--json", action="store_true")
    bench.set_defaults(verb=run_bench)


def run_bench(args: argparse.Namespace) -> dict[str, Any]:
    """`proxysynth bench`: tables on standard output, or JSON."""
    from rich.console import Console

    from proxysynth.bench import BENCHES, measure
    from proxysynth.bench.show import save, show
    from proxysynth.provenance import provenance

    names = list(BENCHES) if "all" in args.names else args.names
    for name in names:
        if name not in BENCHES:
            raise UsageError(f"unknown bench {name!r}: {nearest(name, [*BENCHES, 'all'])}")
    told = Console(stderr=True)
    rows = []
    for name in names:
        with told.status(f"bench {name}: {BENCHES[name]}; leave the machine alone meanwhile"):
            made = measure(name, quick=args.quick)
        rows += made
        if not args.json:
            show(made, Console())
        if args.save is not None:
            for path in save(made, args.save):
                told.print(f"wrote {path}")
    return {"rows": rows, **provenance()}
