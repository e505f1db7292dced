"""Every figure at smoke scale: made of real Runs, saved as vector and PNG, with its numbers."""

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from proxysynth.paper.artifact import PaperFigure
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store, requests
from proxysynth.training.loop import train

SMOKE = SCALES["smoke"]
FIGURES = load_artifacts(name for name in TITLES if name.startswith("figure"))
NAMES = [*(f"figure{number}" for number in "12345"), *(f"figure{letter}" for letter in "ABCD")]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("paper"))
    for run in requests(FIGURES.values(), SMOKE).runs:
        train(run, store.folder_of(run))
    return store


def test_all_nine_figures_are_registered() -> None:
    assert list(FIGURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_drawn_from_runs(name: str, store: Store) -> None:
    picture = FIGURES[name](SMOKE, store)
    assert isinstance(picture, PaperFigure)
    assert isinstance(picture.figure, Figure)
    assert picture.title == f"Figure {name.removeprefix('figure')}"
    assert picture.data or name == "figure1"
    assert not any("not run" in text for text in _texts(picture.figure))
    svg, png = io.BytesIO(), io.BytesIO()
    picture.figure.savefig(svg, format="svg")
    picture.figure.savefig(png, format="png", dpi=100)
    assert b"<svg" in svg.getvalue()
    assert np.asarray(Image.open(png).convert("L")).std() > 5  # something is drawn


@pytest.mark.parametrize("name", [name for name in NAMES if requests([FIGURES[name]], SMOKE).runs])
def test_figure_without_runs_shows_no_number(name: str, tmp_path) -> None:
    picture = FIGURES[name](SMOKE, Store(tmp_path))
    assert not [row for row in picture.data if row.get("mean", "") != "" or "cosine" in row]
    text = " ".join((*_texts(picture.figure), *picture.notes))
    assert "not run" in text or "–" in text
    assert not (tmp_path / "runs").exists()  # nothing was trained


@pytest.mark.parametrize("name", NAMES)
def test_paper_scale_without_folders_needs_no_run(name: str) -> None:
    assert not requests([FIGURES[name]], SCALES["paper"]).runs


def test_font_sizes_are_readable_at_half_size(store: Store) -> None:
    for name in NAMES:
        figure = FIGURES[name](SMOKE, store).figure
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


def _numbers(store: Store):
    made = {name: one(SMOKE, store).numbers for name, one in FIGURES.items()}
    return {name: numbers for name, numbers in made.items() if numbers is not None}


def test_claims_read_the_numbers_of_the_figures(store: Store) -> None:
    tables = _numbers(store)
    assert list(tables) == [n for n in NAMES if n not in ("figure1", "figure5")]
    for name, table in tables.items():
        assert all(row.cells[0].ours for row in table.rows), name
    heat = [row for row in FIGURES["figure4"](SMOKE, store).data
            if row["method"] == "Norm-softmax" and row["row"] == row["column"]]  # fmt: skip
    d0 = tables["figure4"].cell("D0", "mean")
    assert d0.ours[0] == pytest.approx(np.mean([row["cosine"] for row in heat]), abs=1e-4)
    periods = [row.key for row in tables["figureD"].rows]
    assert [name.split()[0] for name in periods] == ["step", "epoch", "epoch", "epoch"]


def test_reading_figure_numbers_writes_nothing(tmp_path) -> None:
    reader = Store(tmp_path / "none", read_only=True)
    tables = _numbers(reader)
    assert not any(c.ours for table in tables.values() for row in table.rows for c in row.cells)
    assert not reader.folder.exists()


def test_figure_4_has_two_runs_per_seed_and_notes_their_means(store: Store) -> None:
    more = replace(SMOKE, seeds=(0, 1, 2))
    assert len(requests([FIGURES["figure4"]], more).runs) == 6
    notes = " ".join(FIGURES["figure4"](SMOKE, store).notes)
    assert "of the one seed are D0 " in notes
    assert ", D4 " in notes


def test_figure_5_notes_paper_means_beside_ours(store: Store) -> None:
    made = FIGURES["figure5"](SMOKE, store)
    text = " ".join(made.notes)
    assert "seen classes 18.8 and 42.3 in the paper" in text  # means of the 18 rows of Table B
    ours = [row["mean"] for row in made.data
            if (row["method"], row["classes"]) == ("PS + Norm-softmax", "test")]  # fmt: skip
    assert f"and {np.mean(ours):.1f} here." in text
    assert "colored" not in text  # a plot colors no difference
