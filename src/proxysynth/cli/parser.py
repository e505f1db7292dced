"""The commands and their options, as a table.

The code behind a command is `cli/COMMAND.py`; it is imported only when the command runs, so that
`proxysynth --help` does not wait for torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from proxysynth import __version__
from proxysynth.values import nearest, suggestion

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


def resources(args: argparse.Namespace, set_threads: bool = False) -> Resources:
    """The device, workers and threads that a command asks for; training sets its threads itself."""
    from proxysynth.training.resources import Resources

    with usage_errors():
        board = getattr(args, "tensorboard", False)
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
    if set_threads and made.threads is not None:
        import torch

        torch.set_num_threads(made.threads)
    return made


# ---- Kinds of arguments


class Argument(NamedTuple):
    """The arguments of `ArgumentParser.add_argument`."""

    names: list[str]
    options: dict[str, Any]


def _text(names: str, metavar: str, help: str, **more: Any) -> Argument:
    """A positional argument or an option with a value; a default is added to its help."""
    if more.get("default") not in (None, "", []):
        help += " (default: %(default)s)"
    return Argument(names.split(), {"metavar": metavar, "help": help, **more})


def _flag(name: str, help: str) -> Argument:
    return Argument([name], {"action": "store_true", "help": help})


def _number(name: str, help: str, default: int | None = None) -> Argument:
    return _text(name, "N", help, type=_integer, default=default)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}") from None


def _path(names: str, metavar: str, help: str, **more: Any) -> Argument:
    return _text(names, metavar, help, type=_expanded, **more)


def _choice(name: str, choices: tuple[str, ...], default: str | None, shown: str = "") -> Argument:
    """One of several names; `shown` describes the default where it is None."""
    help = f"one of %(choices)s{f' (default: {shown})' if shown else ''}"
    return _text(name, "NAME", help, choices=choices, default=default)


def _repeated(name: str, metavar: str, help: str, **more: Any) -> Argument:
    return _text(name, metavar, help, action="append", default=[], **more)


def _set(what: str) -> Argument:
    help = f"{what}; repeatable (default: none)"
    return _repeated("--set", "FIELD=VALUE", help, dest="settings")


def _expanded(text: str) -> Path:
    """A path with ~ expanded, which shells do not do in --out=~/x."""
    return Path(os.path.expanduser(text))


# ---- Arguments of several commands

PLAN = _flag("--plan", "print what would be trained and how long that would take")
SKIP_BAD = _flag("--skip-bad", "skip unreadable images")
INCOMPLETE = _flag("--allow-incomplete", "accept a copy with missing images")
RERANK = _text(
    "--rerank",
    "METHOD",
    "query_expansion, database, k_reciprocal, or several joined by +; fields as in "
    "query_expansion:k=5,alpha=3 (default: none)",
)
WORKERS = _number("--workers", "threads that decode images (default: one per processor)")
RESOURCES = (
    _text("--device", "NAME", "cuda, cuda:1, mps or cpu (default: the fastest available)"),
    WORKERS,
    _number("--threads", "CPU threads of torch (default: chosen by torch)"),
)
TRUST = (
    _text(
        "--backbone",
        "NAME",
        "build the network with this backbone, such as module:function (default: the run's)",
    ),
    _flag("--trust", "allow importing the module:function that the run names as its backbone"),
)
MOVED = tuple(
    _path(
        name, name[2:].upper(), f"{what}, if it was moved without the index (default: as indexed)"
    )
    for name, what in {"--folder": "the folder of the images", "--run": "the run's folder"}.items()
)

# ---- Commands


class Command(NamedTuple):
    """A command: "module:function" of this package, a line of help, and the arguments.

    computes: whether the process is tuned for computing.
    """

    function: str
    what: str
    arguments: Sequence[Argument]
    computes: bool


def _command(function: str, what: str, *arguments: Argument, computes: bool = True) -> Command:
    return Command(function, what, arguments, computes)


COMMANDS = {
    "train": _command(
        "train:run_train",
        "train a model and write its report",
        _text("data", "DATA", f"{DATA} (default: glyphs)", nargs="?"),
        _choice("--loss", LOSSES, None, "norm_softmax"),
        _choice("--regularizer", REGULARIZERS, None, "proxy_synthesis"),
        _text(
            "--backbone",
            "NAME",
            "a built-in network, hf:NAME_OR_FOLDER, timm:NAME or MODULE:FUNCTION (default: conv4 "
            "for glyphs, efficientnet_lite0 for photographs)",
        ),
        _flag("--from-scratch", "start from random weights instead of pretrained ones"),
        _number("--epochs", "passes over the images (default: 30 for glyphs, 20 for photographs)"),
        _number("--seed", "random seed (default: 0)"),
        SKIP_BAD,
        _path(
            "--config",
            "FILE",
            "read settings from a TOML or JSON file, or from a run.json; options on the "
            "command line take precedence (default: none)",
        ),
        _set("a field of the run, such as lr=3e-4, loss.scale=30 or split.seed=1"),
        _flag("--show-config", "print all settings as TOML, each with a line of help, and exit"),
        _path("--out", "DIR", "the run's folder (default: runs/DATA-LOSS-...)"),
        _flag("--resume", "resume the run in --out; more --epochs extend it"),
        _path(
            "--init",
            "RUN",
            "start from the weights and proxies of an earlier run; settings not given are those "
            "of that run (default: none)",
        ),
        _flag("--all-classes", "after the evaluation on unseen classes, train on all classes"),
        _flag(
            "--trust", "allow importing the module:function that --config or the resumed run names"
        ),
        _flag("--tensorboard", "also log to TensorBoard, in the run's folder"),
        *RESOURCES,
    ),
    "eval": _command(
        "eval:run_eval",
        "evaluate a trained run on its test data or other data; or an index with labeled queries",
        _path("run", "RUN|INDEX", "a run's folder, or an index"),
        _text(
            "data",
            "DATA",
            f"{DATA} (default: the run's test data); for an index, a folder of queries with one "
            "sub-folder per label (required)",
            nargs="?",
        ),
        _choice("--protocol", PROTOCOLS, "conventional"),
        _text("--ks", "K,K,...", "values of k for Recall@k (default: the dataset's own)"),
        _flag("--nmi", "also cluster and report NMI (needs scikit-learn)"),
        RERANK,
        SKIP_BAD,
        _number("--seed", "random seed of the deformations (default: 0)"),
        _path("--sheet", "PNG", "write a contact sheet of deformed images (default: none)"),
        _flag("--opposite-zoom", "a zoom of 50 %% shrinks the image instead of enlarging it"),
        *TRUST,
        *RESOURCES,
    ),
    "compare": _command(
        "compare:run_compare",
        "compare runs: metrics, settings and queries",
        _path("runs", "RUN", "folders of runs", nargs="+"),
        _path("-o --out", "FILE", "also write an HTML page (default: none)"),
        computes=False,
    ),
    "mlrc": _command(
        "mlrc:run_mlrc",
        "cross-validated hyper-parameter search, then repetitions of the best setting (MLRC)",
        _text("data", "DATA", DATA),
        _choice("--loss", LOSSES, "norm_softmax"),
        _choice("--regularizer", REGULARIZERS, "none"),
        _number("--trials", "trials of the search (default: 50 at scale paper)"),
        _number("--runs", "repetitions (default: 10 at scale paper)"),
        _number("--folds", "folds of the seen classes (default: 4)"),
        _number("--seed", "random seed of the search", 0),
        _choice("--scale", SCALES, None, "small for glyphs, paper otherwise"),
        PLAN,
        _set("a field of every run of the study, such as epochs=10"),
        _text(
            "--storage",
            "URL",
            "Optuna storage, a database URL or a journal file (default: a file in --out)",
        ),
        _path("--out", "DIR", "the study's folder (default: runs/mlrc/...)"),
        *RESOURCES,
    ),
    "paper": _command(
        "paper:run_paper",
        "reproduce the tables and figures of the paper",
        _text("artifacts", "ARTIFACT", "table6, figure2, ..., or all", nargs="*"),
        _choice("--scale", SCALES, "small"),
        PLAN,
        _flag("--runs", "with --plan: list every missing Run"),
        _flag("--list", "list the artifacts"),
        _repeated(
            "--data",
            "NAME:ROOT",
            "the folder of a benchmark, such as cub200:ROOT; repeatable (default: stand-ins)",
        ),
        _set("a field of every Run, such as weights=bn_inception.pth or precision=auto"),
        _number("--seeds", "seeds per cell (default: 3 at scale small)"),
        _path("--out", "DIR", "output folder (default: paper)"),
        *RESOURCES,
    ),
    "index": _command(
        "index:run_index",
        "embed a folder of images into an index file",
        _text("model", "RUN", "a run's folder, or the name of a backbone"),
        _path("folder", "FOLDER", "images, searched recursively"),
        _path("-o --out", "FILE", "where to write the index (required)", required=True),
        _flag("--rebuild", "embed every image again"),
        _flag(
            "--verify",
            "verify all checksums of an existing index, whatever its size",
        ),
        _flag("--approximate", "also build a FAISS index for fast search"),
        *TRUST,
        *RESOURCES,
    ),
    "search": _command(
        "search:run_search",
        "find the nearest images in an index",
        _path("index", "FILE", "an index"),
        _text("pictures", "IMAGE", "query images; their embeddings are averaged", nargs="+"),
        _number("-k", "number of hits", 10),
        _text("--threshold", "S", "minimum similarity, -1 to 1 (default: none)", type=float),
        _flag("--same", "only images that the run's threshold takes to be of the same class"),
        _text(
            "--target",
            "TARGET",
            "what the threshold of --same is fitted to: far=0.1, far=0.01, far=0.001, f1 or eer",
            default="far=0.01",
        ),
        _text("--label", "NAME", "only images with this label (default: all)"),
        RERANK,
        _flag("--approximate", "search with FAISS; prints its recall"),
        _flag("--open", "write a contact sheet and open it"),
        _path(
            "-o --out",
            "FILE",
            "where to write the contact sheet (default: neighbours.html with --open)",
        ),
        *MOVED,
        *TRUST,
        *RESOURCES,
    ),
    "serve": _command(
        "serve:run_serve",
        "serve a search page over an index",
        _path("index", "FILE", "an index"),
        _text("--host", "HOST", "address to listen on", default="127.0.0.1"),
        _number("--port", "port to listen on; 0 chooses a free one", 8000),
        _text(
            "--root-path",
            "PATH",
            "prefix of a reverse proxy, such as /shop (default: none)",
            default="",
        ),
        _repeated(
            "--allow-host",
            "NAME",
            "also accept requests for this host name; repeatable (default: localhost, and IP "
            "addresses with --host)",
        ),
        _text(
            "--access-log",
            "FILE",
            "write a JSON line for each request; - is standard output (default: none)",
        ),
        RERANK,
        *MOVED,
        *TRUST,
        *RESOURCES,
    ),
    "predict": _command(
        "predict:run_predict",
        "predict the class of images, or unknown",
        _path("run", "RUN", "a run's folder"),
        _path("pictures", "IMAGE", "images, or folders of images", nargs="+"),
        _path(
            "--index",
            "FILE",
            "predict by the nearest images of this index (default: by the nearest proxy)",
        ),
        _number("-k", "number of nearest images in the index that vote", 1),
        _text(
            "--threshold",
            "S",
            "similarity below which an image is unknown; or a target such as far=0.01; or none "
            "(default: the run's)",
        ),
        *TRUST,
        *RESOURCES,
    ),
    "duplicates": _command(
        "groups:run_duplicates",
        "find near-duplicates in an index",
        _path("index", "INDEX", "an index"),
        _text(
            "--threshold",
            "S",
            "minimum similarity of two near-duplicates",
            type=float,
            default=0.95,
        ),
        _path("-o --out", "FILE", "write a contact sheet (default: none)"),
    ),
    "cluster": _command(
        "groups:run_cluster",
        "cluster the images of an index (needs scikit-learn)",
        _path("index", "INDEX", "an index"),
        _choice("--method", ("kmeans", "hdbscan"), "kmeans"),
        _number("-k", "number of clusters of kmeans (default: the number of labels)"),
        _number("--min-size", "minimum number of images in a cluster of hdbscan", 5),
        _number("--seed", "random seed of kmeans", 0),
        _path("-o --out", "DIR", "write a contact sheet for each cluster there (default: none)"),
    ),
    "export": _command(
        "export:run_export",
        "write a trained model or an index in a format that other programs read",
        _path("source", "RUN|INDEX", "a run's folder, or an index"),
        _text(
            "--to",
            "FORMAT",
            "onnx or torch for a run, parquet, npy or faiss for an index (required)",
            choices=("onnx", "torch", "parquet", "npy", "faiss"),
            required=True,
        ),
        _path(
            "-o --out", "FILE", "where to write the model or the table (required)", required=True
        ),
        *TRUST,
    ),
    "data": {
        "list": _command(
            "data:list_data",
            "list the benchmarks: files needed, source and license",
            computes=False,
        ),
        "check": _command(
            "data:check_data",
            "check that a benchmark is complete and readable; or check a file of weights",
            _text("name", "NAME", "a benchmark, see `proxysynth data list`; or `weights`"),
            _path("root", "ROOT", "the benchmark's folder, or the weights file"),
            INCOMPLETE,
            WORKERS,
            computes=False,
        ),
        "prepare": _command(
            "data:prepare_data",
            "write a downscaled copy for fast training",
            _text("name", "NAME", "a benchmark, see `proxysynth data list`"),
            _path("root", "ROOT", "the benchmark's folder"),
            INCOMPLETE,
            WORKERS,
            _path("-o --out", "DIR", "folder of the copy (default: ROOT-SIDE)"),
            _number("--side", "short side of the images in pixels", 256),
            computes=False,
        ),
    },
    "bench": _command(
        "bench:run_bench",
        "measure speed and memory against other implementations (needs a checkout)",
        _text(
            "names",
            "NAME",
            "step, memory, neighbours, loader, training, scale, serve, growth, or all (default)",
            nargs="*",
        ),
        _flag("--quick", "tiny sizes, to check that it works"),
        _path("--save", "DIR", "also write CSV files there (default: none)"),
        computes=False,
    ),
}


# ---- The parser


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest choice."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """A command reports its own unknown arguments, so that its own help is named."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            meant = suggestion(name, self._option_string_actions) if name[:1] == "-" else ""
            raise UsageError(f"unrecognized argument {name!r}: {meant}see `{self.prog} --help`")
        return parsed, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"unknown choice {value!r}: {nearest(str(value), action.choices)}"
            )


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="proxysynth",
        description="Deep metric learning for unseen classes.",
        epilog="Start with `proxysynth train`; `proxysynth COMMAND --help` describes a command.",
    )
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    _add_traceback(top)
    top.set_defaults(function=None, print_help=top.print_help, json=False, computes=False)
    _add(top, COMMANDS)
    return top


def _add(above: argparse.ArgumentParser, table: Mapping[str, Any]) -> None:
    commands = above.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name, command in table.items():
        if not isinstance(command, Command):
            group = commands.add_parser(name, help="list, check and prepare the benchmarks")
            group.set_defaults(print_help=group.print_help)
            _add(group, command)
            continue
        made = commands.add_parser(name, help=command.what, description=command.what)
        made.set_defaults(function=f"proxysynth.cli.{command.function}", computes=command.computes)
        one = "print the result as one JSON object"
        made.add_argument("--json", action="store_true", help=one)
        _add_traceback(made)
        for names, options in command.arguments:
            made.add_argument(*names, **options)


def _add_traceback(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--traceback",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
