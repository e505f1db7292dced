"""The commands and their options, one function per command.

The code behind a command is `cli/COMMAND.py`; it is imported only when the command runs, so that
`proxysynth --help` does not wait for torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from proxysynth import __version__
from proxysynth.values import nearest

if TYPE_CHECKING:
    from proxysynth.training.resources import Resources

LOSSES = (
    "softmax", "norm_softmax", "sphereface", "cosface", "arcface", "proxy_nca", "soft_triple",
    "proxy_anchor",
)  # fmt: skip
REGULARIZERS = ("none", "proxy_synthesis", "virtual_softmax", "input_mixup", "manifold_mixup")
SCALES = ("smoke", "small", "paper")
PROTOCOLS = ("conventional", "deformation", "embedding_deformation")
DATA = "glyphs, a folder with one sub-folder per class, a CSV file, or NAME:ROOT for a benchmark"


class UsageError(ValueError):
    """The arguments of the command are wrong: exit status 2."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError about the command's arguments into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest choice."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"unknown choice {value!r}: {nearest(str(value), action.choices)}"
            )


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(prog="proxysynth", description="Deep metric learning for unseen classes.")
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    _add_traceback(top)
    top.set_defaults(function=None, print_help=top.print_help, json=False, computes=False)
    commands = top.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for add in (_train, _eval, _compare, _mlrc, _paper, _index, _search):
        add(commands)
    for add in (_serve, _predict, _duplicates, _cluster, _export, _data):
        add(commands)
    _bench(commands)
    return top


def _train(commands: Any) -> None:
    train = _command(commands, "train", "train:run_train", "train a model and write its report")
    train.add_argument("data", nargs="?", metavar="DATA", help=f"{DATA} (default: glyphs)")
    _add_method(train, "norm_softmax", "proxy_synthesis")
    train.add_argument(
        "--backbone",
        metavar="NAME",
        help="a built-in network, hf:NAME_OR_FOLDER, timm:NAME or MODULE:FUNCTION (default: conv4 "
        "for glyphs, efficientnet_lite0 for photographs)",
    )
    train.add_argument(
        "--from-scratch", action="store_true", help="start from random, not published, weights"
    )
    train.add_argument(
        "--epochs", type=int, metavar="N", help="default: 30 for glyphs, 20 for photographs"
    )
    train.add_argument("--seed", type=int, metavar="N", help="random seed (default: 0)")
    _add_skip_bad(train)
    train.add_argument(
        "--config",
        type=_path,
        metavar="FILE",
        help="settings from a TOML or JSON file, or from another run's run.json; options on the "
        "command line take precedence (default: none)",
    )
    _add_set(train, "a field of the run, such as lr=3e-4, loss.scale=30 or split.seed=1")
    train.add_argument(
        "--show-config",
        action="store_true",
        help="print every setting of the run as TOML with a line of help, and exit",
    )
    train.add_argument(
        "--out", type=_path, metavar="DIR", help="the run's folder (default: runs/DATA-LOSS-...)"
    )
    train.add_argument(
        "--resume", action="store_true", help="resume the run in --out; more --epochs extend it"
    )
    train.add_argument(
        "--init",
        type=_path,
        metavar="RUN",
        help="start from the weights and proxies of an earlier run; settings not given are those "
        "of that run (default: none)",
    )
    train.add_argument(
        "--all-classes",
        action="store_true",
        help="after the evaluation on unseen classes, train on all classes",
    )
    train.add_argument(
        "--trust",
        action="store_true",
        help="import and call the module:function that --config or the resumed run names",
    )
    train.add_argument("--tensorboard", action="store_true", help="also log to TensorBoard")
    _add_resources(train)


def _eval(commands: Any) -> None:
    what = "evaluate a trained run, also on other data; or labeled queries against an index"
    evaluate = _command(commands, "eval", "eval:run_eval", what)
    evaluate.add_argument(
        "run", type=_path, metavar="RUN|INDEX", help="a run's folder, or an index"
    )
    evaluate.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help=f"{DATA} (default: the run's test data); for an index, a folder of queries with one "
        "sub-folder per label (required)",
    )
    evaluate.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default="conventional",
        metavar="NAME",
        help="one of %(choices)s (default: %(default)s)",
    )
    evaluate.add_argument(
        "--ks", metavar="K,K,...", help="the k of Recall@k (default: the dataset's own)"
    )
    evaluate.add_argument(
        "--nmi", action="store_true", help="also cluster and report NMI (needs scikit-learn)"
    )
    _add_rerank(evaluate)
    _add_skip_bad(evaluate)
    evaluate.add_argument(
        "--seed", type=int, metavar="N", help="random seed of the deformations (default: 0)"
    )
    evaluate.add_argument(
        "--sheet",
        type=_path,
        metavar="PNG",
        help="write a contact sheet of deformed images (default: none)",
    )
    evaluate.add_argument(
        "--opposite-zoom",
        action="store_true",
        help="read a zoom of 50 %% as shrinking the image, not as enlarging it",
    )
    _add_trust(evaluate)
    _add_resources(evaluate)


def _compare(commands: Any) -> None:
    what = "compare runs: metrics, settings and queries"
    compare = _command(commands, "compare", "compare:run_compare", what, computes=False)
    compare.add_argument("runs", nargs="+", type=_path, metavar="RUN", help="folders of runs")
    compare.add_argument(
        "-o", "--out", type=_path, metavar="FILE", help="also write an HTML page (default: none)"
    )


def _mlrc(commands: Any) -> None:
    what = 'the protocol of "A Metric Learning Reality Check": cross-validated search, repetitions'
    mlrc = _command(commands, "mlrc", "mlrc:run_mlrc", what)
    mlrc.add_argument("data", metavar="DATA", help=DATA)
    _add_method(mlrc, "norm_softmax", "none")
    mlrc.set_defaults(loss="norm_softmax", regularizer="none")
    mlrc.add_argument(
        "--trials", type=int, metavar="N", help="trials of the search (default: 50 at scale paper)"
    )
    mlrc.add_argument(
        "--runs", type=int, metavar="N", help="repetitions (default: 10 at scale paper)"
    )
    mlrc.add_argument(
        "--folds", type=int, metavar="N", help="folds of the seen classes (default: 4)"
    )
    mlrc.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the search (default: %(default)s)",
    )
    mlrc.add_argument(
        "--scale",
        choices=SCALES,
        metavar="NAME",
        help="one of %(choices)s (default: small for glyphs, paper otherwise)",
    )
    mlrc.add_argument(
        "--plan", action="store_true", help="print what would be trained and how long it takes"
    )
    _add_set(mlrc, "a field of every run of the study, such as epochs=10")
    mlrc.add_argument(
        "--storage",
        metavar="URL",
        help="Optuna storage, a database URL or a journal file (default: a file in --out)",
    )
    mlrc.add_argument(
        "--out", type=_path, metavar="DIR", help="the study's folder (default: runs/mlrc/...)"
    )
    _add_resources(mlrc)


def _paper(commands: Any) -> None:
    what = "reproduce the tables and figures of the paper"
    paper = _command(commands, "paper", "paper:run_paper", what)
    paper.add_argument(
        "artifacts", nargs="*", metavar="ARTIFACT", help="table6, figure2, ..., or all"
    )
    paper.add_argument(
        "--scale",
        choices=SCALES,
        default="small",
        metavar="NAME",
        help="one of %(choices)s (default: %(default)s)",
    )
    paper.add_argument(
        "--plan", action="store_true", help="print what would be trained and how long it takes"
    )
    paper.add_argument("--runs", action="store_true", help="with --plan: list every missing Run")
    paper.add_argument("--list", action="store_true", help="list the artifacts")
    paper.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME:ROOT",
        help="the folder of a benchmark, such as cub200:ROOT; repeatable (default: stand-ins)",
    )
    _add_set(paper, "a field of every Run, such as weights=bn_inception.pth or precision=auto")
    paper.add_argument(
        "--seeds", type=int, metavar="N", help="seeds per cell (default: 3 at scale small)"
    )
    paper.add_argument("--out", type=_path, metavar="DIR", help="output folder (default: paper)")
    _add_resources(paper)


def _index(commands: Any) -> None:
    what = "embed a folder of images into an index file"
    index = _command(commands, "index", "index:run_index", what)
    index.add_argument("model", metavar="RUN", help="a run's folder, or the name of a backbone")
    index.add_argument("folder", type=_path, metavar="FOLDER", help="images, searched recursively")
    _add_out(index, "the index")
    index.add_argument("--rebuild", action="store_true", help="embed every image again")
    index.add_argument(
        "--verify",
        action="store_true",
        help="compare all data of an existing index with its checksums, whatever its size",
    )
    index.add_argument(
        "--approximate", action="store_true", help="also build a FAISS index for fast search"
    )
    _add_trust(index)
    _add_resources(index)


def _search(commands: Any) -> None:
    what = "find the nearest images in an index"
    search = _command(commands, "search", "search:run_search", what)
    search.add_argument("index", type=_path, metavar="FILE", help="an index")
    search.add_argument(
        "pictures", nargs="+", metavar="IMAGE", help="query images; their embeddings are averaged"
    )
    search.add_argument(
        "-k", type=int, default=10, metavar="N", help="number of hits (default: %(default)s)"
    )
    search.add_argument(
        "--threshold", type=float, metavar="S", help="minimum similarity, -1 to 1 (default: none)"
    )
    search.add_argument(
        "--same",
        action="store_true",
        help="only images that the run's threshold takes to be of the same class",
    )
    search.add_argument(
        "--target",
        default="far=0.01",
        metavar="TARGET",
        help="what the threshold of --same was fitted to: far=0.1, far=0.01, far=0.001, f1 or eer "
        "(default: %(default)s)",
    )
    search.add_argument(
        "--label", metavar="NAME", help="only images with this label (default: all)"
    )
    _add_rerank(search)
    search.add_argument(
        "--approximate", action="store_true", help="search with FAISS; prints its recall"
    )
    search.add_argument("--open", action="store_true", help="write a contact sheet and open it")
    search.add_argument(
        "-o",
        "--out",
        type=_path,
        metavar="FILE",
        help="where the contact sheet goes (default: neighbours.html with --open)",
    )
    _add_moved(search)
    _add_trust(search)
    _add_resources(search)


def _serve(commands: Any) -> None:
    serve = _command(commands, "serve", "serve:run_serve", "serve a search page over an index")
    serve.add_argument("index", type=_path, metavar="FILE", help="an index")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on (default: %(default)s)",
    )
    serve.add_argument(
        "--port",
        type=int,
        default=8000,
        metavar="N",
        help="0 chooses a free port (default: %(default)s)",
    )
    serve.add_argument(
        "--root-path",
        default="",
        metavar="PATH",
        help="prefix of a reverse proxy, such as /shop (default: none)",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="also answer to this host name (default: localhost and IP addresses); repeatable",
    )
    serve.add_argument(
        "--access-log",
        metavar="FILE",
        help="write a JSON line for each request, - for standard output (default: none)",
    )
    _add_rerank(serve)
    _add_moved(serve)
    _add_trust(serve)
    _add_resources(serve)


def _predict(commands: Any) -> None:
    what = "tell the class of images, or that it is unknown"
    predict = _command(commands, "predict", "predict:run_predict", what)
    predict.add_argument("run", type=_path, metavar="RUN", help="a run's folder")
    predict.add_argument(
        "pictures", nargs="+", type=_path, metavar="PICTURE", help="images, or folders of images"
    )
    predict.add_argument(
        "--index",
        type=_path,
        metavar="FILE",
        help="predict its labels by its nearest images (default: the seen classes, by proxies)",
    )
    predict.add_argument(
        "-k",
        type=int,
        default=1,
        metavar="N",
        help="nearest images of the index that vote (default: %(default)s)",
    )
    predict.add_argument(
        "--threshold",
        metavar="S",
        help="similarity below which the class is unknown, or a target such as far=0.01 or none "
        "(default: the run's)",
    )
    _add_trust(predict)
    _add_resources(predict)


def _duplicates(commands: Any) -> None:
    what = "find near-duplicates in an index"
    duplicates = _command(commands, "duplicates", "groups:run_duplicates", what)
    duplicates.add_argument("index", type=_path, metavar="INDEX", help="an index")
    duplicates.add_argument(
        "--threshold",
        type=float,
        default=0.95,
        metavar="S",
        help="minimum similarity of two near-duplicates (default: %(default)s)",
    )
    duplicates.add_argument(
        "-o", "--out", type=_path, metavar="FILE", help="write a contact sheet (default: none)"
    )


def _cluster(commands: Any) -> None:
    what = "cluster the images of an index (needs scikit-learn)"
    cluster = _command(commands, "cluster", "groups:run_cluster", what)
    cluster.add_argument("index", type=_path, metavar="INDEX", help="an index")
    cluster.add_argument(
        "--method",
        choices=("kmeans", "hdbscan"),
        default="kmeans",
        metavar="NAME",
        help="one of %(choices)s (default: %(default)s)",
    )
    cluster.add_argument(
        "-k", type=int, metavar="N", help="clusters of kmeans (default: the number of labels)"
    )
    cluster.add_argument(
        "--min-size",
        type=int,
        default=5,
        metavar="N",
        help="images of a cluster of hdbscan, at least (default: %(default)s)",
    )
    cluster.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of kmeans (default: %(default)s)"
    )
    cluster.add_argument(
        "-o",
        "--out",
        type=_path,
        metavar="DIR",
        help="write a contact sheet for each cluster there (default: none)",
    )


def _export(commands: Any) -> None:
    what = "write a trained model or an index in a format that other programs read"
    export = _command(commands, "export", "export:run_export", what)
    export.add_argument(
        "source", type=_path, metavar="RUN|INDEX", help="a run's folder, or an index"
    )
    export.add_argument(
        "--to",
        choices=("onnx", "torch", "parquet", "npy", "faiss"),
        required=True,
        metavar="FORMAT",
        help="onnx or torch for a run, parquet, npy or faiss for an index (required)",
    )
    _add_out(export, "the model or the table")
    _add_trust(export)


def _data(commands: Any) -> None:
    data = commands.add_parser("data", help="list, check and prepare the benchmarks")
    data.set_defaults(print_help=data.print_help)
    kinds = data.add_subparsers(metavar="COMMAND", parser_class=Parser)
    what = "what each benchmark needs, where it is published, its license"
    _command(kinds, "list", "data:list_data", what, computes=False)
    what = "count the images of a copy and read every file; `check weights FILE` tries weights"
    check = _command(kinds, "check", "data:check_data", what, computes=False)
    what = "write a downscaled copy for fast training"
    prepare = _command(kinds, "prepare", "data:prepare_data", what, computes=False)
    for command in (check, prepare):
        more = ", or weights" if command is check else ""
        command.add_argument("name", metavar="NAME", help=f"see `proxysynth data list`{more}")
        more = ", or the file of the weights" if command is check else ""
        command.add_argument(
            "root", type=_path, metavar="ROOT", help=f"the benchmark's folder{more}"
        )
        command.add_argument(
            "--allow-incomplete", action="store_true", help="accept a copy with images missing"
        )
        _add_workers(command)
    prepare.add_argument(
        "-o", "--out", type=_path, metavar="DIR", help="where the copy goes (default: ROOT-SIDE)"
    )
    prepare.add_argument(
        "--side",
        type=int,
        default=256,
        metavar="N",
        help="short side of the images in pixels (default: %(default)s)",
    )


def _bench(commands: Any) -> None:
    what = "measure speed and memory against other implementations (needs a checkout)"
    bench = _command(commands, "bench", "bench:run_bench", what, computes=False)
    bench.add_argument(
        "names",
        nargs="*",
        default=["all"],
        metavar="NAME",
        help="step, memory, neighbours, loader, training, scale, serve, growth, or all (default)",
    )
    bench.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    bench.add_argument(
        "--save", type=_path, metavar="DIR", help="also write CSV files there (default: none)"
    )


def _command(
    commands: Any, name: str, function: str, what: str, computes: bool = True
) -> argparse.ArgumentParser:
    """A command that `function`, "module:function" of this package, runs."""
    made: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what)
    made.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    _add_traceback(made)
    made.set_defaults(function=f"proxysynth.cli.{function}", computes=computes)
    return made


def _add_traceback(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--traceback",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )


def _add_method(command: argparse.ArgumentParser, loss: str, regularizer: str) -> None:
    """The options --loss and --regularizer; None stands for the default."""
    command.add_argument(
        "--loss", choices=LOSSES, metavar="NAME", help=f"one of %(choices)s (default: {loss})"
    )
    command.add_argument(
        "--regularizer",
        choices=REGULARIZERS,
        metavar="NAME",
        help=f"one of %(choices)s (default: {regularizer})",
    )


def _add_set(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="FIELD=VALUE",
        help=f"{what}; repeatable (default: none)",
    )


def _add_skip_bad(command: argparse.ArgumentParser) -> None:
    command.add_argument("--skip-bad", action="store_true", help="skip unreadable images")


def _add_rerank(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rerank",
        metavar="METHOD",
        help="query_expansion, database, k_reciprocal, or several joined by +; fields as in "
        "query_expansion:k=5,alpha=3 (default: none)",
    )


def _add_out(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "-o",
        "--out",
        type=_path,
        required=True,
        metavar="FILE",
        help=f"where to write {what} (required)",
    )


def _add_trust(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--backbone",
        metavar="NAME",
        help="build the network with this backbone, such as module:function (default: the run's)",
    )
    command.add_argument(
        "--trust",
        action="store_true",
        help="import and call the module:function that the run names as its backbone",
    )


def _add_moved(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--folder",
        type=_path,
        metavar="FOLDER",
        help="the folder of the images, if it was moved without the index (default: as indexed)",
    )
    command.add_argument(
        "--run",
        type=_path,
        metavar="RUN",
        help="the run's folder, if it was moved without the index (default: as indexed)",
    )


def _add_resources(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", metavar="NAME", help="cuda, cuda:1, mps or cpu (default: the fastest present)"
    )
    _add_workers(command)
    command.add_argument(
        "--threads", type=int, metavar="N", help="torch's threads on the CPU (default: torch's)"
    )


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="threads that decode images (default: one per processor)",
    )


def resources(args: argparse.Namespace) -> Resources:
    """The device, workers and threads that a command asks for."""
    from proxysynth.training.resources import Resources

    with usage_errors():
        board = getattr(args, "tensorboard", False)
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
        return made


def _path(text: str) -> Path:
    """A path with ~ expanded, which shells do not do in --out=~/x."""
    return Path(os.path.expanduser(text))
