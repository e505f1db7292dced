"""The command line: verbs and their options. What they do lives elsewhere, imported when asked for.

Results go to standard output, everything else to standard error. With `--json` the last line of
standard output is one JSON object and nothing else stands there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from proxysynth import __version__

USAGE, FAILED, INTERRUPTED = 2, 1, 130


class UsageError(ValueError):
    """The command's words are off: exit 2."""


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line that says what to do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 asked for wrongly."""
    warnings.showwarning = _warn
    try:
        args = parser().parse_args(argv)
        result = args.verb(args)
    except UsageError as error:
        _end(error, USAGE)
    except (ValueError, OSError, RuntimeError) as error:
        _end(error, FAILED)
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on", INTERRUPTED)
    if result is not None and args.json:
        print(json.dumps(result), flush=True)
    sys.exit(0)


def _end(message: object, code: int) -> NoReturn:
    print(f"proxysynth: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(code)


def _warn(message: object, *_: object, **__: object) -> None:
    print(f"proxysynth: warning: {' '.join(str(message).split())}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="proxysynth", description="Deep metric learning for unseen classes.")
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    top.set_defaults(verb=lambda args: top.print_help(sys.stderr), json=False)
    verbs = top.add_subparsers(metavar="VERB", parser_class=Parser)

    train = _verb(verbs, "train", train_verb, "train, evaluate and leave a folder with a report")
    train.add_argument("data", nargs="?", metavar="DATA", help="glyphs, a folder, a CSV, NAME:ROOT")
    train.add_argument("--loss", help="norm_softmax unless said otherwise")
    train.add_argument("--regularizer", help="proxy_synthesis unless said otherwise; or none")
    train.add_argument("--backbone", help="by data: conv4, efficientnet_lite0; MODULE:FUNCTION")
    train.add_argument("--from-scratch", action="store_true", help="random weights to start with")
    train.add_argument("--epochs", type=int, metavar="N")
    train.add_argument("--seed", type=int, metavar="N")
    train.add_argument("--skip-bad", action="store_true", help="leave out unreadable pictures")
    train.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="settings")
    train.add_argument("--out", type=Path, metavar="DIR", help="runs/... unless said otherwise")
    train.add_argument("--resume", action="store_true", help="go on with the run in --out")
    train.add_argument("--tensorboard", action="store_true")
    _machine(train)

    evaluate = _verb(verbs, "eval", eval_verb, "a trained run's metrics, on other data too")
    evaluate.add_argument("run", type=Path, metavar="RUN")
    evaluate.add_argument("data", nargs="?", metavar="DATA", help="unless given, the run's own")
    evaluate.add_argument("--protocol", choices=["conventional"], default="conventional")
    evaluate.add_argument("--ks", metavar="K,K,...", help="of Recall@k")
    evaluate.add_argument("--nmi", action="store_true", help="cluster the embeddings too")
    _machine(evaluate)

    compare = _verb(verbs, "compare", compare_verb, "runs side by side")
    compare.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    compare.add_argument("-o", "--out", type=Path, metavar="FILE", help="also write an HTML page")

    data = verbs.add_parser("data", help="the benchmarks: list, check, prepare")
    data.set_defaults(verb=lambda args: data.print_help(sys.stderr), json=False)
    kinds = data.add_subparsers(metavar="VERB", parser_class=Parser)
    _verb(kinds, "list", data_list_verb, "what each needs, where it is published, its licence")
    check = _verb(kinds, "check", data_check_verb, "count a copy's pictures and read every file")
    prepare = _verb(kinds, "prepare", data_prepare_verb, "write a shrunken copy for fast training")
    for verb in (check, prepare):
        verb.add_argument("name", metavar="NAME")
        verb.add_argument("root", type=Path, metavar="ROOT")
        verb.add_argument("--allow-incomplete", action="store_true", help="accept what is there")
        verb.add_argument("--workers", type=int, metavar="N", help="threads that read pictures")
    prepare.add_argument("-o", "--out", type=Path, metavar="DIR", help="ROOT-SIDE unless given")
    prepare.add_argument("--side", type=int, default=256, metavar="N", help="of the short side")

    bench = _verb(verbs, "bench", bench_verb, "measure speed and memory against peers")
    bench.add_argument("names", nargs="*", default=["all"], metavar="NAME", help="all, or some of")
    bench.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    bench.add_argument("--save", type=Path, metavar="DIR", help="write CSV files there")
    return top


def _verb(verbs: Any, name: str, function: Any, what: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what)
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    made.set_defaults(verb=function)
    return made


def _machine(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--device", help="cuda, mps or cpu; the best there is unless given")
    verb.add_argument("--workers", type=int, metavar="N", help="threads that decode pictures")
    verb.add_argument("--threads", type=int, metavar="N", help="of torch on the CPU")


def _share_the_machine() -> None:
    """Let waiting threads sleep, unless the user has said how they should wait.

    Where other programs use the processors too, threads that wait busily for each other can make
    training of a small network many times slower. Must be said before torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def train_verb(args: argparse.Namespace) -> dict[str, Any]:
    _share_the_machine()
    from proxysynth.commands.train import run_train

    return run_train(args)


def eval_verb(args: argparse.Namespace) -> dict[str, Any]:
    _share_the_machine()
    from proxysynth.commands.evaluate import run_eval

    return run_eval(args)


def compare_verb(args: argparse.Namespace) -> dict[str, Any]:
    from proxysynth.commands.compare import run_compare

    return run_compare(args)


def bench_verb(args: argparse.Namespace) -> dict[str, Any]:
    from proxysynth.commands.bench import run_bench

    return run_bench(args)


def data_list_verb(args: argparse.Namespace) -> dict[str, Any]:
    from proxysynth.commands.data import list_data

    return list_data(args)


def data_check_verb(args: argparse.Namespace) -> dict[str, Any]:
    from proxysynth.commands.data import check_data

    return check_data(args)


def data_prepare_verb(args: argparse.Namespace) -> dict[str, Any]:
    from proxysynth.commands.data import prepare_data

    return prepare_data(args)
