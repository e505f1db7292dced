"""Tiny data and tiny runs."""

from __future__ import annotations

import pytest

from proxysynth.training import Run, Split, train
from training.tiny_pictures import pictures


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("photos") / "set")


@pytest.fixture(scope="session")
def glyph_run():
    """A run on a few glyphs: about a tenth of a second."""
    split = Split(train_classes=6, test_classes=5, faces_per_class=8)
    return Run(split=split, epochs=2, dim=16, width=0.25, batch_size=16)


@pytest.fixture(scope="session")
def photo_run(photos):
    """A run on files, with crops and flips drawn at random."""
    return Run(
        data=str(photos), epochs=3, dim=8, width=0.25, batch_size=4, image_size=32, augment=True
    )


@pytest.fixture(scope="session")
def finished(glyph_run, tmp_path_factory):
    """A folder of a finished run; tests may read it, not write."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(glyph_run, folder)
    return folder
