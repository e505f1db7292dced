"""A folder of pictures, a run that was trained on it, and an index of both."""

from __future__ import annotations

import pytest

from proxysynth.search.build import update_index
from proxysynth.search.model import open_model
from proxysynth.training import Run, train
from training.tiny_pictures import pictures


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A finished run; tests may read it, not write."""
    base = tmp_path_factory.mktemp("trained")
    run = Run(
        data=str(pictures(base / "photos")),
        epochs=1,
        dim=8,
        width=0.25,
        batch_size=4,
        image_size=32,
    )
    train(run, base / "run")
    return base / "run"


@pytest.fixture(scope="session")
def model(run_folder):
    return open_model(run_folder)


@pytest.fixture
def photos(tmp_path):
    """A folder of four classes with three pictures each, one picture beside them."""
    root = pictures(tmp_path / "photos", classes=4, each=3)
    (root / "class0" / "0.png").rename(root / "loose.png")
    return root


@pytest.fixture
def index_file(model, photos, tmp_path):
    return update_index(model, photos, tmp_path / "shop.index").file
