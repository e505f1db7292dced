"""The parser of the command line, made from the tables of `commands.toml`.

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
from proxysynth.errors import TrainingFailed
from proxysynth.values import choices_hint, read_toml, suggestion

if TYPE_CHECKING:
    from proxysynth.training.resources import Resources

TABLES = read_toml(Path(__file__).with_name("commands.toml"))
CHOICES = {name: tuple(choices) for name, choices in TABLES["choices"].items()}


class UsageError(ValueError):
    """The arguments of the command are wrong: exit status 2."""


@contextmanager
def usage_errors(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Turn ValueErrors about the arguments into UsageErrors; `TrainingFailed` stays as it is."""
    try:
        yield
    except TrainingFailed:
        raise
    except kind as error:
        raise UsageError(str(error)) from error


def resources(args: argparse.Namespace) -> Resources:
    """The device, workers and threads that a command asks for; the threads are set."""
    from proxysynth.training.resources import Resources

    board = getattr(args, "tensorboard", False)
    with usage_errors():
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
    if made.threads is not None:
        import torch

        torch.set_num_threads(made.threads)
    return made


# ---- Types of arguments


def _integers(text: str) -> tuple[int, ...]:
    numbers = [int(number) if number.isdecimal() else 0 for number in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected integers >= 1 such as 1,10,100, got {text!r}")
    return tuple(numbers)


def _path(text: str) -> Path:
    """A path with ~ expanded, which shells do not do in --out=~/x."""
    return Path(os.path.expanduser(text))


def _page(text: str) -> Path:
    path = _path(text)
    if path.suffix.lower() not in (".html", ".htm"):
        use = path.with_suffix(".html")
        raise argparse.ArgumentTypeError(f"-o writes an HTML page: use {use}, not {text}")
    return path


PATHS = ("RUN", "INDEX", "RUN|INDEX", "FILE", "FOLDER", "IMAGE|FOLDER", "DIR", "ROOT", "PNG")
TYPES: dict[str, Any] = {"N": int, "S": float, "K,K,...": _integers, "HTML": _page}
TYPES |= dict.fromkeys(PATHS, _path)
"""The type of an argument by the name of its value; text for all others."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest the nearest choice, and no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        _, found, missing = message.partition("arguments are required: ")
        places = [a for a in self._actions if not a.option_strings and a.nargs != "?"]
        given = [f"{a.metavar} ({a.help})" for a in places]
        lacking = {a.metavar for a in places} & set(missing.split(", "))
        expected = f"; expected {', then '.join(given)}" if found and lacking else ""
        raise UsageError(f"{message}{expected}; see `{self.prog} --help`")

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
                action, f"unknown choice {value!r}: {choices_hint(str(value), action.choices)}"
            )

    def add(self, arguments: Mapping[str, str | dict[str, Any]]) -> None:
        """Add a table of arguments, as `commands.toml` describes them."""
        for usage, about in arguments.items():
            options = {"help": about} if isinstance(about, str) else dict(about)
            *names, value = usage.split()
            if names:
                kind = value.rstrip("?*+")
                options |= {"metavar": kind, "nargs": value.removeprefix(kind) or None}
                options |= {"type": TYPES.get(kind), "choices": CHOICES.get(kind)}
            else:
                options["action"] = "store_true"
            if options.pop("repeatable", False):
                options |= {"action": "append", "default": []}
            elif options.get("default", "") != "":
                options["help"] += " (default: %(default)s)"
            self.add_argument(*(names or [value]), **options)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="proxysynth",
        description="Deep metric learning for unseen classes.",
        epilog="Start with `proxysynth train`; `proxysynth COMMAND --help` describes a command.",
    )
    shared = TABLES["shared"]
    top.add_argument("--version", action="version", version=f"proxysynth {__version__}")
    top.add({"--traceback": shared["every"]["--traceback"]})
    top.set_defaults(function=None, print_help=top.print_help, json=False, computes=False)
    above = {"": top.add_subparsers(metavar="COMMAND", parser_class=Parser)}
    for command, table in TABLES["commands"].items():
        group, _, name = command.rpartition(" ")
        made = above[group].add_parser(name, help=table["help"], description=table["help"])
        if "module" not in table:  # a group of commands
            made.set_defaults(print_help=made.print_help)
            above[command] = made.add_subparsers(metavar="COMMAND", parser_class=Parser)
            continue
        function = f"proxysynth.cli.{table['module']}:run_{name}"
        made.set_defaults(function=function, computes=table.get("tuned", True))
        made.add(table.get("arguments", {}))
        for part in (*table.get("shared", ()), "every"):
            made.add(shared[part])
    return top
