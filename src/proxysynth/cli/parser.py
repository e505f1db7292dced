"""The commands and their options, as tables.

The code behind a command is imported only when it runs, so that `proxysynth --help` does not wait
for torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
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
SOURCES = "glyphs, a folder with one sub-folder per class, a CSV file, or NAME:ROOT for a benchmark"


class UsageError(ValueError):
    """The arguments of the command are wrong: exit status 2."""


@contextmanager
def usage_errors(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Turn an error about the command's arguments into a UsageError."""
    try:
        yield
    except kind as error:
        raise UsageError(str(error)) from error


def resources(args: argparse.Namespace, set_threads: bool = False) -> Resources:
    """The device, workers and threads that a command asks for; training sets its threads itself."""
    from proxysynth.training.resources import Resources

    board = getattr(args, "tensorboard", False)
    with usage_errors():
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
    if set_threads and made.threads is not None:
        import torch

        torch.set_num_threads(made.threads)
    return made


# ---- Kinds of arguments

Arguments = dict[str, "str | dict[str, Any]"]
"""Usage -> help, or more options of `ArgumentParser.add_argument`.

A usage is "data DATA" for a positional argument, "-o --out FILE" for an option with a value or
"--resume" for a flag. The value says the type (see TYPES) and may end with an `nargs`: RUN+.
"""


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


PATHS = ("RUN", "INDEX", "RUN|INDEX", "FILE", "FOLDER", "IMAGE|FOLDER", "DIR", "ROOT", "PNG")
TYPES: dict[str, Any] = {"N": _integer, "K,K,...": _integers, "S": float}
TYPES |= dict.fromkeys(PATHS, _path)
"""The type of an argument by the name of its value; text for all others."""


def _default(value: Any, help: str) -> dict[str, Any]:
    return {"default": value, "help": f"{help} (default: %(default)s)"}


def _choice(choices: tuple[str, ...], default: str | None, shown: str = "") -> dict[str, Any]:
    """One of several names; `shown` describes the default where it is None."""
    help = f"one of %(choices)s (default: {shown or default})"
    return {"choices": choices, "default": default, "help": help}


def _repeatable(help: str, default: str = "none", **more: Any) -> dict[str, Any]:
    help = f"{help}; repeatable (default: {default})"
    return {"action": "append", "default": [], "help": help, **more}


def _set(what: str) -> Arguments:
    return {"--set FIELD=VALUE": _repeatable(what, dest="settings")}


# ---- Arguments of several commands

PLAN = {"--plan": "print what would be trained and how long that would take"}
SKIP_BAD = {"--skip-bad": "skip unreadable images"}
INCOMPLETE = {"--allow-incomplete": "accept a copy with missing images"}
RERANK = {
    "--rerank METHOD": "query_expansion, database, k_reciprocal, or several joined by +; fields as "
    "in query_expansion:k=5,alpha=3 (default: none)"
}
WORKERS = {"--workers N": "threads that decode images (default: one per processor)"}
RESOURCES = {
    "--device NAME": "cuda, cuda:1, mps or cpu (default: the fastest available)",
    **WORKERS,
    "--threads N": "CPU threads of torch (default: chosen by torch)",
}
TRUST = {
    "--backbone NAME": "build this backbone, such as module:function (default: the run's)",
    "--trust": "allow importing the module:function that the run names as its backbone",
}
MOVED = {
    "--folder FOLDER": "the folder of the images, if moved without the index (default: as indexed)",
    "--run RUN": "the run's folder, if moved without the index (default: as indexed)",
}
EVERY: dict[str, Any] = {
    "--json": "print the result as one JSON object",
    "--traceback": {"default": argparse.SUPPRESS, "help": "show the traceback of an error"},
}

# ---- Arguments of each command

TRAIN: Arguments = {
    "data DATA?": f"{SOURCES} (default: glyphs)",
    "--loss NAME": _choice(LOSSES, None, "norm_softmax"),
    "--regularizer NAME": _choice(REGULARIZERS, None, "proxy_synthesis"),
    "--backbone NAME": "a built-in network, hf:NAME_OR_FOLDER, timm:NAME or MODULE:FUNCTION "
    "(default: conv4 for glyphs, efficientnet_lite0 for photographs)",
    "--from-scratch": "start from random weights instead of pretrained ones",
    "--epochs N": "passes over the images (default: 30 for glyphs, 20 for photographs)",
    "--seed N": "random seed (default: 0)",
    **SKIP_BAD,
    "--config FILE": "read settings from a TOML or JSON file, or from a run.json; options on the "
    "command line take precedence (default: none)",
    **_set("a field of the run, such as lr=3e-4, loss.scale=30 or split.seed=1"),
    "--show-config": "print all settings as TOML, each with a line of help, and exit",
    "--out DIR": "the run's folder (default: runs/DATA-LOSS-...)",
    "--resume": "resume the run in --out; more --epochs extend it",
    "--init RUN": "start from the weights and proxies of an earlier run; settings not given are "
    "those of that run (default: none)",
    "--all-classes": "after the evaluation on unseen classes, train on all classes",
    "--trust": "allow importing the module:function that --config or the resumed run names",
    "--tensorboard": "also log to TensorBoard, in the run's folder",
    **RESOURCES,
}
EVAL: Arguments = {
    "run RUN|INDEX": "a run's folder, or an index",
    "data DATA?": f"{SOURCES} (default: the run's test data); for an index, a folder of queries "
    "with one sub-folder per label (required)",
    "--protocol NAME": _choice(PROTOCOLS, "conventional"),
    "--ks K,K,...": "values of k for Recall@k (default: the dataset's own)",
    "--nmi": "also cluster and report NMI (needs scikit-learn)",
    **RERANK,
    **SKIP_BAD,
    "--seed N": "random seed of the deformations (default: 0)",
    "--sheet PNG": "write a contact sheet of deformed images (default: none)",
    "--opposite-zoom": "a zoom of 50 %% shrinks the image instead of enlarging it",
    **TRUST,
    **RESOURCES,
}
COMPARE: Arguments = {
    "runs RUN+": "folders of runs",
    "-o --out FILE": "also write an HTML page (default: none)",
}
MLRC: Arguments = {
    "data DATA": SOURCES,
    "--loss NAME": _choice(LOSSES, "norm_softmax"),
    "--regularizer NAME": _choice(REGULARIZERS, "none"),
    "--trials N": "trials of the search (default: by --scale, 50 at paper)",
    "--runs N": "repetitions (default: by --scale, 10 at paper)",
    "--folds N": "folds of the seen classes (default: 4)",
    "--seed N": _default(0, "random seed of the search"),
    "--scale NAME": _choice(SCALES, None, "small for glyphs, paper otherwise"),
    **PLAN,
    **_set("a field of every run of the study, such as epochs=10"),
    "--storage URL": "Optuna storage, a database URL or a journal file (default: a file in --out)",
    "--out DIR": "the study's folder (default: runs/mlrc/DATA-LOSS-...)",
    **RESOURCES,
}
PAPER: Arguments = {
    "artifacts ARTIFACT*": "table6, figure2, ..., or all",
    "--scale NAME": _choice(SCALES, "small"),
    **PLAN,
    "--runs": "with --plan: list every missing Run",
    "--list": "list the artifacts",
    "--data NAME:ROOT": _repeatable("the folder of a benchmark, such as cub200:ROOT", "stand-ins"),
    **_set("a field of every Run, such as weights=bn_inception.pth or precision=auto"),
    "--seeds N": "seeds per cell (default: 3 at scale small)",
    "--out DIR": "output folder (default: paper)",
    **RESOURCES,
}
INDEX: Arguments = {
    "model RUN|BACKBONE": "a run's folder, or the name of a backbone",
    "folder FOLDER": "images, searched recursively",
    "-o --out FILE": {"required": True, "help": "where to write the index (required)"},
    "--rebuild": "embed every image again",
    "--verify": "verify all checksums of an existing index, whatever its size",
    "--approximate": "also build a FAISS index for fast search",
    **TRUST,
    **RESOURCES,
}
SEARCH: Arguments = {
    "index FILE": "an index",
    "pictures IMAGE+": "query images; their embeddings are averaged",
    "-k N": _default(10, "number of hits"),
    "--threshold S": "minimum similarity, -1 to 1 (default: none)",
    "--same": "only images above the run's same-class threshold",
    "--target TARGET": _default(
        "far=0.01",
        "what the threshold of --same is fitted to: a false accept rate (far=0.1, far=0.01, "
        "far=0.001), f1 or eer",
    ),
    "--label NAME": "only images with this label (default: all)",
    **RERANK,
    "--approximate": "search with FAISS; prints its recall",
    "--open": "write a contact sheet and open it",
    "-o --out FILE": "where to write the contact sheet (default: neighbors.html with --open)",
    **MOVED,
    **TRUST,
    **RESOURCES,
}
SERVE: Arguments = {
    "index FILE": "an index",
    "--host HOST": _default("127.0.0.1", "address to listen on"),
    "--port N": _default(8000, "port to listen on; 0 chooses a free one"),
    "--root-path PATH": {
        "default": "",
        "help": "URL prefix set by a reverse proxy, such as /shop (default: none)",
    },
    "--allow-host NAME": _repeatable(
        "also accept requests for this host name", "localhost, and IP addresses with --host"
    ),
    "--access-log FILE|-": "log requests as JSON lines; - is standard output (default: none)",
    **RERANK,
    **MOVED,
    **TRUST,
    **RESOURCES,
}
PREDICT: Arguments = {
    "run RUN": "a run's folder",
    "pictures IMAGE|FOLDER+": "images, or folders of images",
    "--index FILE": "predict by the nearest images of this index (default: by the nearest proxy)",
    "-k N": _default(1, "number of nearest images in the index that vote"),
    "--threshold S|TARGET": "similarity below which an image is unknown; or a target such as "
    "far=0.01; or none (default: the run's)",
    **TRUST,
    **RESOURCES,
}
DUPLICATES: Arguments = {
    "index INDEX": "an index",
    "--threshold S": _default(0.95, "minimum similarity of two near-duplicates"),
    "-o --out FILE": "write a contact sheet (default: none)",
}
CLUSTER: Arguments = {
    "index INDEX": "an index",
    "--method NAME": _choice(("kmeans", "hdbscan"), "kmeans"),
    "-k N": "number of clusters of kmeans (default: the number of labels)",
    "--min-size N": _default(5, "minimum number of images in a cluster of hdbscan"),
    "--seed N": _default(0, "random seed of kmeans"),
    "-o --out DIR": "write a contact sheet for each cluster there (default: none)",
}
EXPORT: Arguments = {
    "source RUN|INDEX": "a run's folder, or an index",
    "--to FORMAT": {
        "choices": ("onnx", "torch", "parquet", "npy", "faiss"),
        "required": True,
        "help": "onnx or torch for a run, parquet, npy or faiss for an index (required)",
    },
    "-o --out FILE": {"required": True, "help": "where to write the file (required)"},
    **TRUST,
}
CHECK: Arguments = {
    "name NAME": "a benchmark, see `proxysynth data list`; or `weights`",
    "root ROOT": "the benchmark's folder, or the weights file",
    **INCOMPLETE,
    **WORKERS,
}
PREPARE: Arguments = {
    "name NAME": "a benchmark, see `proxysynth data list`",
    "root ROOT": "the benchmark's folder",
    **INCOMPLETE,
    **WORKERS,
    "-o --out DIR": "folder of the copy (default: ROOT-SIDE)",
    "--side N": _default(256, "short side of the images in pixels"),
}
BENCH: Arguments = {
    "names NAME*": "step, memory, neighbours, loader, training, scale, serve, growth; default: all",
    "--quick": "tiny sizes, to check that it works",
    "--save DIR": "also write CSV files there (default: none)",
}

# ---- Commands: name -> (module of `run_NAME`, a line of help, arguments)

COMMANDS: dict[str, tuple[str, str, Arguments]] = {
    "train": ("train", "train a model and write its report", TRAIN),
    "eval": ("eval", "evaluate a trained run, or an index with labeled queries", EVAL),
    "compare": ("compare", "compare runs: metrics, settings and queries", COMPARE),
    "mlrc": ("mlrc", "tune hyper-parameters and repeat the best setting (MLRC)", MLRC),
    "paper": ("paper", "reproduce the tables and figures of the paper", PAPER),
    "index": ("index", "embed a folder of images into an index file", INDEX),
    "search": ("search", "find the nearest images in an index", SEARCH),
    "serve": ("serve", "serve a search page over an index", SERVE),
    "predict": ("index", "predict the class of images, or unknown", PREDICT),
    "duplicates": ("index", "find near-duplicates in an index", DUPLICATES),
    "cluster": ("index", "cluster an index's images (needs scikit-learn)", CLUSTER),
    "export": ("index", "export a model or an index", EXPORT),
    "data list": ("data", "list the benchmarks: files needed, source and license", {}),
    "data check": ("data", "check a copy of a benchmark, or a file of weights", CHECK),
    "data prepare": ("data", "write a downscaled copy for fast training", PREPARE),
    "bench": (
        "bench",
        "compare speed and memory with other libraries (needs a clone)",
        BENCH,
    ),
}
GROUPS = {"data": "list, check and prepare the benchmarks"}
NOT_TUNED = ("compare", "data", "bench")  # modules that compute little, or measure


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest choice, and no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        if "arguments are required" in message:
            taken = [a for a in self._actions if not a.option_strings and a.metavar]
            message += "; expected " + ", ".join(f"{a.metavar} ({a.help})" for a in taken)
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

    def add(self, arguments: Arguments) -> None:
        for usage, about in arguments.items():
            *names, value = usage.split()
            kind = value.rstrip("?*+")
            given: dict[str, Any] = {"action": "store_true"}
            if names:
                nargs = value.removeprefix(kind) or None
                given = {"metavar": kind, "type": TYPES.get(kind), "nargs": nargs}
            given |= {"help": about} if isinstance(about, str) else about
            self.add_argument(*(names or [value]), **given)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="proxysynth",
        description="Deep metric learning for unseen classes.",
        epilog="Start with `proxysynth train`; `proxysynth COMMAND --help` describes a command.",
    )
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    top.add({"--traceback": EVERY["--traceback"]})
    top.set_defaults(function=None, print_help=top.print_help, json=False, computes=False)
    above = {"": top.add_subparsers(metavar="COMMAND", parser_class=Parser)}
    for command, (module, what, arguments) in COMMANDS.items():
        group, _, name = command.rpartition(" ")
        if group not in above:
            made = above[""].add_parser(group, help=GROUPS[group])
            made.set_defaults(print_help=made.print_help)
            above[group] = made.add_subparsers(metavar="COMMAND", parser_class=Parser)
        made = above[group].add_parser(name, help=what, description=what)
        function = f"proxysynth.cli.{module}:run_{name}"
        made.set_defaults(function=function, computes=module not in NOT_TUNED)
        made.add(EVERY | arguments)
    return top
