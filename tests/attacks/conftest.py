"""One small shop: images, a finished run, a second one to compare with, and an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from proxysynth.search.build import update_index
from proxysynth.search.model import open_model
from proxysynth.training import Resources, Run, train
from training.tiny_pictures import pictures


class Interrupt:
    """A progress that interrupts training at the end of its second epoch."""

    def say(self, sentence: str) -> None:
        if sentence.startswith("epoch 2"):
            raise KeyboardInterrupt

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        yield lambda count, text: None


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with photos/, the runs run/ and other/, the same run half/ with two checkpoints and
    no result, and shop.index; tests may read it, not write."""
    base = tmp_path_factory.mktemp("attacked")
    photos = pictures(base / "photos", classes=4, each=4)
    run = Run(data=str(photos), epochs=2, dim=8, width=0.25, batch_size=4, image_size=32)
    train(run, base / "run")
    train(replace(run, seed=1), base / "other")
    often = Resources(checkpoint_steps=1)
    with pytest.raises(KeyboardInterrupt):
        train(run, base / "half", resources=often, progress=Interrupt())
    update_index(open_model(base / "run", "cpu"), photos, base / "shop.index")
    return base
