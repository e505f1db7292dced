"""The commands and their options, as a table.

The code behind a command is imported only when it runs, so that `proxysynth --help` does not wait
for torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from proxysynth import __version__
from proxysynth.values import nearest, suggestion

if TYPE_CHECKING:
    from proxysynth.training.resources import Resources

LOSSES = (
    "softmax", "norm_softmax", "sphereface", "cosface", "arcface", "proxy_nca", "soft_triple",
    "proxy_anchor"
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

Argument = tuple[list[str], dict[str, Any]]
"""The arguments of `ArgumentParser.add_argument`."""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}") from None


def _integers(text: str) -> tuple[int, ...]:
    numbers = tuple(map(_integer, text.split(",")))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected integers >= 1 such as 1,10,100, got {text!r}")
    return numbers


def _path(text: str) -> Path:
    """A path with ~ expanded, which shells do not do in --out=~/x."""
    return Path(os.path.expanduser(text))


PATHS = ("RUN", "INDEX", "RUN|INDEX", "FILE", "FOLDER", "DIR", "ROOT", "PNG")
TYPES: dict[str, Any] = {"N": _integer, "K,K,...": _integers, "S": float}
TYPES |= dict.fromkeys(PATHS, _path)
"""The type of an argument by the name of its value; text for all others."""


def _arg(usage: str, help: str, **more: Any) -> Argument:
    """An argument by its usage: "data DATA" is positional, "-o --out FILE" an option with a value,
    "--resume" a flag; a default is added to its help."""
    *names, value = usage.split()
    if not names:
        return [value], {"action": "store_true", "help": help, **more}
    if more.get("default") not in (None, "", []):
        help += " (default: %(default)s)"
    return names, {"metavar": value, "help": help, "type": TYPES.get(value), **more}


def _choice(name: str, choices: tuple[str, ...], default: str | None, shown: str = "") -> Argument:
    """One of several names; `shown` describes the default where it is None."""
    help = f"one of %(choices)s{f' (default: {shown})' if shown else ''}"
    return _arg(f"{name} NAME", help, choices=choices, default=default)


def _repeated(usage: str, help: str, **more: Any) -> Argument:
    return _arg(usage, help, action="append", default=[], **more)


def _set(what: str) -> Argument:
    help = f"{what}; repeatable (default: none)"
    return _repeated("--set FIELD=VALUE", help, dest="settings")


# ---- Arguments of several commands

PLAN = _arg("--plan", "print what would be trained and how long that would take")
SKIP_BAD = _arg("--skip-bad", "skip unreadable images")
INCOMPLETE = _arg("--allow-incomplete", "accept a copy with missing images")
RERANK = _arg(
    "--rerank METHOD",
    "query_expansion, database, k_reciprocal, or several joined by +; fields as in "
    "query_expansion:k=5,alpha=3 (default: none)",
)
WORKERS = _arg("--workers N", "threads that decode images (default: one per processor)")
RESOURCES = (
    _arg("--device NAME", "cuda, cuda:1, mps or cpu (default: the fastest available)"),
    WORKERS,
    _arg("--threads N", "CPU threads of torch (default: chosen by torch)"),
)
TRUST = (
    _arg(
        "--backbone NAME",
        "build the network with this backbone, such as module:function (default: the run's)",
    ),
    _arg("--trust", "allow importing the module:function that the run names as its backbone"),
)
LOADING = (*TRUST, *RESOURCES)
MOVED = (
    _arg(
        "--folder FOLDER",
        "the folder of the images, if it was moved without the index (default: as indexed)",
    ),
    _arg("--run RUN", "the run's folder, if it was moved without the index (default: as indexed)"),
)
JSON = _arg("--json", "print the result as one JSON object")
TRACEBACK = _arg("--traceback", "show the traceback of an error", default=argparse.SUPPRESS)

# ---- Commands

NOT_TUNED = ("compare", "data", "bench")  # modules that compute little, or measure
COMMANDS: dict[str, Any] = {  # name: ("module:function", a line of help, *arguments)
    "train": (
        "train:run_train",
        "train a model and write its report",
        _arg("data DATA", f"{DATA} (default: glyphs)", nargs="?"),
        _choice("--loss", LOSSES, None, "norm_softmax"),
        _choice("--regularizer", REGULARIZERS, None, "proxy_synthesis"),
        _arg(
            "--backbone NAME",
            "a built-in network, hf:NAME_OR_FOLDER, timm:NAME or MODULE:FUNCTION (default: conv4 "
            "for glyphs, efficientnet_lite0 for photographs)",
        ),
        _arg("--from-scratch", "start from random weights instead of pretrained ones"),
        _arg("--epochs N", "passes over the images (default: 30 for glyphs, 20 for photographs)"),
        _arg("--seed N", "random seed (default: 0)"),
        SKIP_BAD,
        _arg(
            "--config FILE",
            "read settings from a TOML or JSON file, or from a run.json; options on the "
            "command line take precedence (default: none)",
        ),
        _set("a field of the run, such as lr=3e-4, loss.scale=30 or split.seed=1"),
        _arg("--show-config", "print all settings as TOML, each with a line of help, and exit"),
        _arg("--out DIR", "the run's folder (default: runs/DATA-LOSS-...)"),
        _arg("--resume", "resume the run in --out; more --epochs extend it"),
        _arg(
            "--init RUN",
            "start from the weights and proxies of an earlier run; settings not given are those "
            "of that run (default: none)",
        ),
        _arg("--all-classes", "after the evaluation on unseen classes, train on all classes"),
        _arg(
            "--trust", "allow importing the module:function that --config or the resumed run names"
        ),
        _arg("--tensorboard", "also log to TensorBoard, in the run's folder"),
        *RESOURCES,
    ),
    "eval": (
        "eval:run_eval",
        "evaluate a trained run on its test data or other data; or an index with labeled queries",
        _arg("run RUN|INDEX", "a run's folder, or an index"),
        _arg(
            "data DATA",
            f"{DATA} (default: the run's test data); for an index, a folder of queries with one "
            "sub-folder per label (required)",
            nargs="?",
        ),
        _choice("--protocol", PROTOCOLS, "conventional"),
        _arg("--ks K,K,...", "values of k for Recall@k (default: the dataset's own)"),
        _arg("--nmi", "also cluster and report NMI (needs scikit-learn)"),
        RERANK,
        SKIP_BAD,
        _arg("--seed N", "random seed of the deformations (default: 0)"),
        _arg("--sheet PNG", "write a contact sheet of deformed images (default: none)"),
        _arg("--opposite-zoom", "a zoom of 50 %% shrinks the image instead of enlarging it"),
        *LOADING,
    ),
    "compare": (
        "compare:run_compare",
        "compare runs: metrics, settings and queries",
        _arg("runs RUN", "folders of runs", nargs="+"),
        _arg("-o --out FILE", "also write an HTML page (default: none)"),
    ),
    "mlrc": (
        "mlrc:run_mlrc",
        "cross-validated hyper-parameter search, then repetitions of the best setting (MLRC)",
        _arg("data DATA", DATA),
        _choice("--loss", LOSSES, "norm_softmax"),
        _choice("--regularizer", REGULARIZERS, "none"),
        _arg("--trials N", "trials of the search (default: 50 at scale paper)"),
        _arg("--runs N", "repetitions (default: 10 at scale paper)"),
        _arg("--folds N", "folds of the seen classes (default: 4)"),
        _arg("--seed N", "random seed of the search", default=0),
        _choice("--scale", SCALES, None, "small for glyphs, paper otherwise"),
        PLAN,
        _set("a field of every run of the study, such as epochs=10"),
        _arg(
            "--storage URL",
            "Optuna storage, a database URL or a journal file (default: a file in --out)",
        ),
        _arg("--out DIR", "the study's folder (default: runs/mlrc/DATA-LOSS-...)"),
        *RESOURCES,
    ),
    "paper": (
        "paper:run_paper",
        "reproduce the tables and figures of the paper",
        _arg("artifacts ARTIFACT", "table6, figure2, ..., or all", nargs="*"),
        _choice("--scale", SCALES, "small"),
        PLAN,
        _arg("--runs", "with --plan: list every missing Run"),
        _arg("--list", "list the artifacts"),
        _repeated(
            "--data NAME:ROOT",
            "the folder of a benchmark, such as cub200:ROOT; repeatable (default: stand-ins)",
        ),
        _set("a field of every Run, such as weights=bn_inception.pth or precision=auto"),
        _arg("--seeds N", "seeds per cell (default: 3 at scale small)"),
        _arg("--out DIR", "output folder (default: paper)"),
        *RESOURCES,
    ),
    "index": (
        "index:run_index",
        "embed a folder of images into an index file",
        _arg("model RUN", "a run's folder, or the name of a backbone", type=str),
        _arg("folder FOLDER", "images, searched recursively"),
        _arg("-o --out FILE", "where to write the index (required)", required=True),
        _arg("--rebuild", "embed every image again"),
        _arg("--verify", "verify all checksums of an existing index, whatever its size"),
        _arg("--approximate", "also build a FAISS index for fast search"),
        *LOADING,
    ),
    "search": (
        "search:run_search",
        "find the nearest images in an index",
        _arg("index FILE", "an index"),
        _arg("pictures IMAGE", "query images; their embeddings are averaged", nargs="+"),
        _arg("-k N", "number of hits", default=10),
        _arg("--threshold S", "minimum similarity, -1 to 1 (default: none)"),
        _arg("--same", "only images that the run's threshold takes to be of the same class"),
        _arg(
            "--target TARGET",
            "what the threshold of --same is fitted to: a false accept rate (far=0.1, far=0.01, "
            "far=0.001), f1 or eer",
            default="far=0.01",
        ),
        _arg("--label NAME", "only images with this label (default: all)"),
        RERANK,
        _arg("--approximate", "search with FAISS; prints its recall"),
        _arg("--open", "write a contact sheet and open it"),
        _arg(
            "-o --out FILE",
            "where to write the contact sheet (default: neighbours.html with --open)",
        ),
        *MOVED,
        *LOADING,
    ),
    "serve": (
        "serve:run_serve",
        "serve a search page over an index",
        _arg("index FILE", "an index"),
        _arg("--host HOST", "address to listen on", default="127.0.0.1"),
        _arg("--port N", "port to listen on; 0 chooses a free one", default=8000),
        _arg(
            "--root-path PATH",
            "prefix of a reverse proxy, such as /shop (default: none)",
            default="",
        ),
        _repeated(
            "--allow-host NAME",
            "also accept requests for this host name; repeatable (default: localhost, and IP "
            "addresses with --host)",
        ),
        _arg(
            "--access-log FILE",
            "write a JSON line for each request; - is standard output (default: none)",
            type=str,
        ),
        RERANK,
        *MOVED,
        *LOADING,
    ),
    "predict": (
        "index:run_predict",
        "predict the class of images, or unknown",
        _arg("run RUN", "a run's folder"),
        _arg("pictures IMAGE", "images, or folders of images", type=_path, nargs="+"),
        _arg(
            "--index FILE",
            "predict by the nearest images of this index (default: by the nearest proxy)",
        ),
        _arg("-k N", "number of nearest images in the index that vote", default=1),
        _arg(
            "--threshold S",
            "similarity below which an image is unknown; or a target such as far=0.01; or none "
            "(default: the run's)",
            type=str,
        ),
        *LOADING,
    ),
    "duplicates": (
        "index:run_duplicates",
        "find near-duplicates in an index",
        _arg("index INDEX", "an index"),
        _arg("--threshold S", "minimum similarity of two near-duplicates", default=0.95),
        _arg("-o --out FILE", "write a contact sheet (default: none)"),
    ),
    "cluster": (
        "index:run_cluster",
        "cluster the images of an index (needs scikit-learn)",
        _arg("index INDEX", "an index"),
        _choice("--method", ("kmeans", "hdbscan"), "kmeans"),
        _arg("-k N", "number of clusters of kmeans (default: the number of labels)"),
        _arg("--min-size N", "minimum number of images in a cluster of hdbscan", default=5),
        _arg("--seed N", "random seed of kmeans", default=0),
        _arg("-o --out DIR", "write a contact sheet for each cluster there (default: none)"),
    ),
    "export": (
        "index:run_export",
        "write a trained model or an index in a format that other programs read",
        _arg("source RUN|INDEX", "a run's folder, or an index"),
        _arg(
            "--to FORMAT",
            "onnx or torch for a run, parquet, npy or faiss for an index (required)",
            choices=("onnx", "torch", "parquet", "npy", "faiss"),
            required=True,
        ),
        _arg("-o --out FILE", "where to write the model or the table (required)", required=True),
        *TRUST,
    ),
    "data": {
        "list": ("data:list_data", "list the benchmarks: files needed, source and license"),
        "check": (
            "data:check_data",
            "check that a benchmark is complete and readable; or check a file of weights",
            _arg("name NAME", "a benchmark, see `proxysynth data list`; or `weights`"),
            _arg("root ROOT", "the benchmark's folder, or the weights file"),
            INCOMPLETE,
            WORKERS,
        ),
        "prepare": (
            "data:prepare_data",
            "write a downscaled copy for fast training",
            _arg("name NAME", "a benchmark, see `proxysynth data list`"),
            _arg("root ROOT", "the benchmark's folder"),
            INCOMPLETE,
            WORKERS,
            _arg("-o --out DIR", "folder of the copy (default: ROOT-SIDE)"),
            _arg("--side N", "short side of the images in pixels", default=256),
        ),
    },
    "bench": (
        "bench:run_bench",
        "measure speed and memory against other implementations (needs a checkout)",
        _arg(
            "names NAME",
            "step, memory, neighbours, loader, training, scale, serve, growth, or all (default)",
            nargs="*",
        ),
        _arg("--quick", "tiny sizes, to check that it works"),
        _arg("--save DIR", "also write CSV files there (default: none)"),
    ),
}


# ---- The parser


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest choice, and no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

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

    def add(self, *arguments: Argument) -> None:
        for names, options in arguments:
            self.add_argument(*names, **options)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="proxysynth",
        description="Deep metric learning for unseen classes.",
        epilog="Start with `proxysynth train`; `proxysynth COMMAND --help` describes a command.",
    )
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    top.add(TRACEBACK)
    top.set_defaults(function=None, print_help=top.print_help, json=False, computes=False)
    _add_commands(top, COMMANDS)
    return top


def _add_commands(above: Parser, table: Mapping[str, Any]) -> None:
    commands = above.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name, command in table.items():
        if isinstance(command, dict):
            group = commands.add_parser(name, help="list, check and prepare the benchmarks")
            group.set_defaults(print_help=group.print_help)
            _add_commands(group, command)
            continue
        function, what, *arguments = command
        made = commands.add_parser(name, help=what, description=what)
        computes = function.partition(":")[0] not in NOT_TUNED
        made.set_defaults(function=f"proxysynth.cli.{function}", computes=computes)
        made.add(JSON, TRACEBACK, *arguments)
