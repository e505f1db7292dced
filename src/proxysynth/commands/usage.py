"""Errors of the words of a command, apart from errors of the work it asks for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from proxysynth.options import UsageError
from proxysynth.training.resources import Resources


@contextmanager
def understanding() -> Iterator[None]:
    """What fails in here was asked for wrongly."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def resources(args: argparse.Namespace) -> Resources:
    """The machine's part of a command."""
    with understanding():
        board = getattr(args, "tensorboard", False)
        made = Resources(args.device, args.workers, args.threads, tensorboard=board)
        made.torch_device()
        return made
