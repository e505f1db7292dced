"""Every figure at smoke scale: made of real Runs, saved as vector and PNG, with its numbers."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from proxysynth.paper.artifact import Picture
from proxysynth.paper.figures import FIGURES
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store
from proxysynth.training.loop import train

SMOKE = SCALES["smoke"]
NAMES = [*(f"figure{number}" for number in "12345"), *(f"figure{letter}" for letter in "ABCD")]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("paper"))
    for artifact in FIGURES.values():
        for run in dict.fromkeys(artifact.runs(SMOKE)):
            if store.result(run) is None:
                train(run, store.folder_of(run))
    return store


def test_all_nine_are_there() -> None:
    assert list(FIGURES) == NAMES
    assert all(artifact.name == name for name, artifact in FIGURES.items())


@pytest.mark.parametrize("name", NAMES)
def test_made_of_runs(name: str, store: Store) -> None:
    picture = FIGURES[name].make(SMOKE, store)
    assert isinstance(picture, Picture)
    assert isinstance(picture.figure, Figure)
    assert picture.title == f"Figure {name.removeprefix('figure')}"
    assert picture.data or name == "figure1"
    assert not any("not run" in text for text in _texts(picture.figure))
    svg, png = io.BytesIO(), io.BytesIO()
    picture.figure.savefig(svg, format="svg")
    picture.figure.savefig(png, format="png", dpi=100)
    assert b"<svg" in svg.getvalue()
    assert np.asarray(Image.open(png).convert("L")).std() > 5  # something is drawn


@pytest.mark.parametrize("name", [name for name in NAMES if FIGURES[name].runs(SMOKE)])
def test_without_its_runs_there_is_a_dash_and_no_number(name: str, tmp_path) -> None:
    picture = FIGURES[name].make(SMOKE, Store(tmp_path))
    assert not [row for row in picture.data if row.get("mean", "") != "" or "cosine" in row]
    told = " ".join((*_texts(picture.figure), *picture.notes))
    assert "not run" in told or "–" in told
    assert not (tmp_path / "runs").exists()  # nothing was trained


@pytest.mark.parametrize("name", NAMES)
def test_paper_scale_without_folders_needs_no_run(name: str) -> None:
    assert list(FIGURES[name].runs(SCALES["paper"])) == []


def test_letters_can_be_read_at_half_size(store: Store) -> None:
    for name in NAMES:
        figure = FIGURES[name].make(SMOKE, store).figure
        sizes = [
            text.get_fontsize() for text in figure.findobj(_is_text) if text.get_text().strip()
        ]
        assert min(sizes) >= 8, name
        assert figure.get_figwidth() <= 7.01, name


def _is_text(artist: object) -> bool:
    from matplotlib.text import Text

    return isinstance(artist, Text)


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(_is_text)]
