"""The verbs of the command line and their options, one function a verb.

What a verb does lives in `commands/`, one file each, imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from proxysynth import __version__

if TYPE_CHECKING:
    from proxysynth.training.resources import Resources

SCALES = ("smoke", "small", "paper")


class UsageError(ValueError):
    """The command's words are off: exit 2."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError about the command's arguments into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line that says what to do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parser() -> argparse.ArgumentParser:
    """Every verb with its options."""
    top = Parser(prog="proxysynth", description="Deep metric learning for unseen classes.")
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    top.set_defaults(run_verb=None, print_help=top.print_help, json=False, computes=False)
    verbs = top.add_subparsers(metavar="VERB", parser_class=Parser)
    for add in (_train, _eval, _compare, _mlrc, _paper, _index, _search, _serve, _export):
        add(verbs)
    _data(verbs)
    _bench(verbs)
    return top


def _train(verbs: Any) -> None:
    train = _verb(verbs, "train", "train:run_train", "train, evaluate and leave a report")
    train.add_argument("data", nargs="?", metavar="DATA", help="glyphs, a folder, a CSV, NAME:ROOT")
    train.add_argument("--loss", help="norm_softmax unless said otherwise")
    train.add_argument("--regularizer", help="proxy_synthesis unless said otherwise; or none")
    train.add_argument("--backbone", help="by data: conv4, efficientnet_lite0; MODULE:FUNCTION")
    train.add_argument("--from-scratch", action="store_true", help="random weights to start with")
    train.add_argument("--epochs", type=int, metavar="N")
    train.add_argument("--seed", type=int, metavar="N")
    train.add_argument("--skip-bad", action="store_true", help="leave out unreadable pictures")
    train.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="settings")
    train.add_argument("--out", type=_path, metavar="DIR", help="runs/... unless said otherwise")
    train.add_argument("--resume", action="store_true", help="go on with the run in --out")
    train.add_argument("--tensorboard", action="store_true")
    _machine(train)


def _eval(verbs: Any) -> None:
    what = "a trained run's metrics, on other data too"
    evaluate = _verb(verbs, "eval", "eval:run_eval", what)
    evaluate.add_argument("run", type=_path, metavar="RUN")
    evaluate.add_argument("data", nargs="?", metavar="DATA", help="unless given, the run's own")
    protocols = ["conventional", "deformation", "embedding_deformation"]
    evaluate.add_argument("--protocol", choices=protocols, default="conventional")
    evaluate.add_argument("--ks", metavar="K,K,...", help="of Recall@k")
    evaluate.add_argument("--nmi", action="store_true", help="cluster the embeddings too")
    evaluate.add_argument("--skip-bad", action="store_true", help="leave out unreadable pictures")
    evaluate.add_argument("--seed", type=int, metavar="N", help="of deformations, 0 unless given")
    evaluate.add_argument("--sheet", type=_path, metavar="PNG", help="deformed pictures to look at")
    evaluate.add_argument("--opposite-zoom", action="store_true", help="50 %% shrinks the picture")
    _machine(evaluate)


def _compare(verbs: Any) -> None:
    compare = _verb(verbs, "compare", "compare:run_compare", "runs side by side", computes=False)
    compare.add_argument("runs", nargs="+", type=_path, metavar="RUN")
    compare.add_argument("-o", "--out", type=_path, metavar="FILE", help="also write an HTML page")


def _mlrc(verbs: Any) -> None:
    what = "the fair protocol: search by cross-validation, then repetitions"
    mlrc = _verb(verbs, "mlrc", "mlrc:run_mlrc", what)
    mlrc.add_argument("data", metavar="DATA", help="glyphs, a folder, a CSV, NAME:ROOT")
    mlrc.add_argument("--loss", default="norm_softmax")
    mlrc.add_argument("--regularizer", default="none")
    mlrc.add_argument("--trials", type=int, metavar="N", help="50 at the paper's scale")
    mlrc.add_argument("--runs", type=int, metavar="N", help="repetitions, 10 at the paper's scale")
    mlrc.add_argument("--folds", type=int, metavar="N", help="of the seen classes, 4 as a rule")
    mlrc.add_argument("--seed", type=int, default=0, metavar="N", help="of the search")
    mlrc.add_argument("--scale", choices=SCALES, help="small for glyphs, else paper")
    mlrc.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="settings")
    mlrc.add_argument("--storage", metavar="URL", help="a database or journal file of Optuna")
    mlrc.add_argument("--out", type=_path, metavar="DIR", help="runs/mlrc/... unless given")
    _machine(mlrc)


def _paper(verbs: Any) -> None:
    paper = _verb(verbs, "paper", "paper:run_paper", "the paper's tables and figures, made again")
    paper.add_argument("artifacts", nargs="*", metavar="ARTIFACT", help="table6, figure2, all, ...")
    paper.add_argument("--scale", choices=SCALES, default="small")
    paper.add_argument("--plan", action="store_true", help="what would be trained, and how long")
    paper.add_argument("--list", action="store_true", help="the names of all artifacts")
    what = "a benchmark's folder, such as cub200:ROOT or cifar10:ROOT; repeatable"
    paper.add_argument("--data", action="append", default=[], metavar="NAME:ROOT", help=what)
    paper.add_argument("--seeds", type=int, metavar="N", help="3 at the scale small")
    paper.add_argument("--out", type=_path, metavar="DIR", help="paper unless said otherwise")
    _machine(paper)


def _index(verbs: Any) -> None:
    index = _verb(verbs, "index", "index:run_index", "embed a folder of pictures into a file")
    index.add_argument("model", metavar="RUN", help="a run's folder, or a backbone's name")
    index.add_argument("folder", type=_path, metavar="FOLDER")
    index.add_argument("-o", "--out", type=_path, required=True, metavar="FILE")
    index.add_argument("--rebuild", action="store_true", help="embed all pictures again")
    index.add_argument("--approximate", action="store_true", help="prepare FAISS's search as well")
    _machine(index)


def _search(verbs: Any) -> None:
    search = _verb(verbs, "search", "search:run_search", "the nearest pictures of an index")
    search.add_argument("index", type=_path, metavar="FILE")
    search.add_argument("pictures", nargs="+", metavar="IMAGE")
    search.add_argument("-k", type=int, default=10, metavar="N")
    search.add_argument("--threshold", type=float, metavar="S", help="least similarity, -1 to 1")
    search.add_argument("--label", metavar="NAME", help="only pictures of this label")
    search.add_argument("--approximate", action="store_true", help="by FAISS; says what it loses")
    search.add_argument("--open", action="store_true", help="write a contact sheet and show it")
    search.add_argument("-o", "--out", type=_path, metavar="FILE", help="where the sheet goes")
    search.add_argument("--run", type=_path, metavar="RUN", help="where the run is, if it moved")
    _machine(search)


def _serve(verbs: Any) -> None:
    serve = _verb(verbs, "serve", "serve:run_serve", "a search page over an index")
    serve.add_argument("index", type=_path, metavar="FILE")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    serve.add_argument("--run", type=_path, metavar="RUN", help="where the run is, if it moved")
    _machine(serve)


def _export(verbs: Any) -> None:
    export = _verb(verbs, "export", "export:run_export", "a trained model for other programs")
    export.add_argument("run", type=_path, metavar="RUN")
    export.add_argument("--to", choices=["onnx", "torch"], required=True)
    export.add_argument("-o", "--out", type=_path, required=True, metavar="FILE")


def _data(verbs: Any) -> None:
    data = verbs.add_parser("data", help="the benchmarks: list, check, prepare")
    data.set_defaults(print_help=data.print_help)
    kinds = data.add_subparsers(metavar="VERB", parser_class=Parser)
    what = "what each needs, where it is published, its licence"
    _verb(kinds, "list", "data:list_data", what, computes=False)
    what = "count a copy's pictures and read every file"
    check = _verb(kinds, "check", "data:check_data", what, computes=False)
    what = "write a shrunken copy for fast training"
    prepare = _verb(kinds, "prepare", "data:prepare_data", what, computes=False)
    for verb in (check, prepare):
        verb.add_argument("name", metavar="NAME")
        verb.add_argument("root", type=_path, metavar="ROOT")
        verb.add_argument("--allow-incomplete", action="store_true", help="accept what is there")
        verb.add_argument("--workers", type=int, metavar="N", help="threads that read pictures")
    prepare.add_argument("-o", "--out", type=_path, metavar="DIR", help="ROOT-SIDE unless given")
    prepare.add_argument("--side", type=int, default=256, metavar="N", help="of the short side")


def _bench(verbs: Any) -> None:
    what = "measure speed and memory against peers"
    bench = _verb(verbs, "bench", "bench:run_bench", what, computes=False)
    bench.add_argument("names", nargs="*", default=["all"], metavar="NAME", help="all, or some of")
    bench.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    bench.add_argument("--save", type=_path, metavar="DIR", help="write CSV files there")


def _verb(
    verbs: Any, name: str, function: str, what: str, computes: bool = True
) -> argparse.ArgumentParser:
    """A verb that `function`, "file:function" of `commands/`, does."""
    made: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what)
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    made.set_defaults(run_verb=f"proxysynth.cli.{function}", computes=computes)
    return made


def _path(text: str) -> Path:
    """A path as it was meant: a shell leaves the ~ of --out=~/x alone."""
    return Path(os.path.expanduser(text))


def _machine(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--device", help="cuda, mps or cpu; the best there is unless given")
    verb.add_argument("--workers", type=int, metavar="N", help="threads that decode pictures")
    verb.add_argument("--threads", type=int, metavar="N", help="of torch on the CPU")


def resources(args: argparse.Namespace) -> Resources:
    """The device, workers and threads that a command asks for."""
    from proxysynth.training.resources import Resources

    with usage_errors():
        board = getattr(args, "tensorboard", False)
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
        return made
