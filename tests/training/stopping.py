"""Trainings that stop as if they were killed."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from proxysynth.training import Silent, train


class Stopped(BaseException):
    """A stand-in for a kill."""


class Stopper(Silent):
    """Keeps the messages; stops the training after so many batches."""

    def __init__(self, batches: int | None = None) -> None:
        self.left, self.messages = batches, []

    def say(self, sentence):
        self.messages.append(sentence)

    @contextmanager
    def task(self, name, total, done=0):
        yield self._tick if name == "training" else lambda images, note: None

    def _tick(self, images, note):
        if self.left is not None and images:
            self.left -= 1
            if self.left < 0:
                raise Stopped


def stopped_and_resumed(run, folder, batches, resources=None) -> list[str]:
    """Train a run that is stopped after so many batches and resumed; the messages of the end."""
    with pytest.raises(Stopped):
        train(run, folder, resources=resources, progress=Stopper(batches))
    stopper = Stopper()
    train(run, folder, resources=resources, progress=stopper)
    return stopper.messages
