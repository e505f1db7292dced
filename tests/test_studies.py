"""The studies behind the tables in README.md."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from proxysynth.losses import NormSoftmax
from proxysynth.paper.store import Store
from proxysynth.training import Run, Split, train
from proxysynth.training.run import KINDS
from proxysynth.values import decode, encode

FOLDER = Path(__file__).parents[1] / "studies"


@pytest.fixture
def studies(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("plans", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    return run


def test_every_run_is_planned_once(studies, tmp_path) -> None:
    counts = {"cub200": 24, "glyph_losses": 160, "glyph_regularizers": 45, "glyph_classes": 72,
              "glyph_settings": 52, "glyph_scales": 56}  # fmt: skip
    for name, study in studies.STUDIES.items():
        planned = list(study(cub=str(tmp_path)))
        assert len({item.run.identity for item in planned}) == len(planned) == counts[name]
        for item in planned[:3]:
            assert decode(encode(item.run), KINDS) == item.run


def test_settings_are_chosen_without_the_unseen_classes(studies) -> None:
    for name in ("glyph_settings", "glyph_scales"):
        assert all(item.run.split.fold is not None for item in studies.STUDIES[name]())


def test_finished_runs_make_the_table(studies, tmp_path) -> None:
    split = Split(train_classes=6, test_classes=5, faces_per_class=8)
    made, waiting = (
        Run(split=split, loss=NormSoftmax(), epochs=2, dim=16, width=0.25, seed=seed)
        for seed in (0, 1)
    )
    store = Store(tmp_path / "store")
    result = train(made, store.folder_of(made))
    planned = [studies.Planned(run, {"loss": "norm_softmax", "seed": run.seed})
               for run in (made, waiting)]  # fmt: skip
    told = studies.write_table("tiny", planned, store, tmp_path)
    assert told.startswith("tiny: 1 of 2 runs are finished")
    with (tmp_path / "study_tiny.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["seed"] == "0"
    assert row["tested_on"] == "unseen classes"
    assert float(row["map@r"]) == pytest.approx(result.metrics["map@r"], abs=1e-5)
    assert float(row["best_on_test_recall@1"]) >= float(row["recall@1"]) - 1e-5


def test_photographs_need_their_folder(studies) -> None:
    with pytest.raises(ValueError, match="give it with --cub"):
        list(studies.STUDIES["cub200"]())
