"""Every table at the scale smoke, and what becomes of what was not run."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paper.conftest import SMOKED, TABLES
from proxysynth.paper.artifact import Table
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.printed import number, printed
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store, requests
from proxysynth.paper.tables.cells import LOSS_NAMES, cell as cell_of, measured, synthesis_search
from proxysynth.paper.tables.conventional import shows_photographs
from proxysynth.paper.tables.mlrc import study_of
from proxysynth.paper.tables.regularizers import grid_search, mixup_search
from proxysynth.training.loop import train
from proxysynth.training.run import Run, Split

SMOKE, SMALL = SCALES["smoke"], SCALES["small"]
ARTIFACTS = load_artifacts()


def _made(name: str, store: Store, scale: Any = SMOKE) -> Table:
    made = ARTIFACTS[name](scale, store)
    assert isinstance(made, Table)
    return made


@pytest.mark.parametrize("name", SMOKED)
def test_every_possible_cell_is_filled(name: str, smoke_store: Store) -> None:
    table = _made(name, smoke_store)
    tried = {
        "tableC": {(f"{a:g}", f"{mu:g}") for a in SMOKE.class_alphas for mu in SMOKE.class_mus},
        "tableE": {(loss, f"{a:g}") for loss in LOSS_NAMES.values() for a in SMOKE.mixup_alphas},
    }
    for row in table.rows:
        cited = row.labels[0] in ("Ens", "Gen", "Pair")
        if name in tried and row.labels not in tried[name]:
            continue
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cited or cell.text or not column.ours or (name, row.key) == ("tableA", "0"):
                continue
            assert len(cell.ours) == 1, (name, row.key, column.name)
            assert all(-100 <= value <= 100 or name == "tableA" for value in cell.ours)


@pytest.mark.parametrize("name", [n for n in TABLES if n != "tableA"])
def test_tables_without_runs_have_no_measured_numbers(name: str, empty: Store) -> None:
    for scale in (SMALL, SCALES["paper"]):
        table = _made(name, empty, scale)
        ran = [column.key for _, column, cell in table.cells() if cell.ours]
        assert all(key.endswith("photographs") for key in ran)  # from a study in the checkout
        assert any(cell.paper is not None for _, _, cell in table.cells())
    assert not empty.folder.exists()  # making trains and writes nothing


def test_paper_numbers_are_in_their_cells(empty: Store) -> None:
    assert _paper("table1", "M2 synthetic synthetic", "R@1", empty) == 83.1
    assert _paper("table2", "drawn, alpha 0.4", "R@1", empty) == 84.7
    assert _paper("table3", "zoom out", "proxy_synthesis", empty) == 80.0
    assert _paper("table4", "PS + CosFace", "sop concatenated map@r", empty) == 48.68
    assert _paper("table5", "Manifold Mixup", "norm_softmax cars196", empty) == 83.6
    assert _paper("table6", "PS + Proxy-anchor", "inshop", empty) == 91.9
    assert _paper("tableB", "0.50", "proxy_nca test proxy_synthesis", empty) == 24.8
    assert _paper("tableC", "1.5 0.75", "cifar100", empty) == 77.1
    assert _paper("tableD", "Virtual Softmax", "tiny_imagenet", empty) == 58.1
    assert _paper("tableE", "Softmax 0.4", "input_mixup sop", empty) == 77.0
    assert _paper("tableJ", "Pair Margin R50 128", "recall@1000", empty) == 98.0
    assert _paper("tableK", "Proxy-anchor", "sop separated precision@1", empty) == 71.56
    assert _paper("tableL", "- PS: maximum boost - -", "recall@1", empty) == 1.4


def _paper(name: str, row: str, column: str, store: Store) -> float | None:
    cell = _made(name, store, SMALL).cell(row, column)
    return cell.paper


def test_every_printed_number_is_shown(empty: Store) -> None:
    for name in (f"table{letter}" for letter in "12356BCDE"):
        cells = [cell for _, _, cell in _made(name, empty, SMALL).cells()]
        shown = sorted(cell.paper for cell in cells if cell.paper is not None)
        assert shown == sorted(float(row["value"]) for row in printed(name)), name


def test_table_1_is_the_mean_of_its_runs(smoke_store: Store) -> None:
    runs = requests([ARTIFACTS["table1"]], SMOKE).runs
    results = [smoke_store.result(run) for run in runs]
    table = _made("table1", smoke_store)
    for row, result in zip(table.rows, results, strict=True):
        assert row.cells[0].ours == (100 * result.metrics["recall@1"],)
    assert table.rows[0].cells[0].baseline == ()
    assert table.rows[1].cells[0].baseline != ()


def test_mean_requires_every_seed(smoke_store: Store) -> None:
    runs = list(requests([ARTIFACTS["table1"]], replace(SMOKE, seeds=(0, 1))).runs)
    assert len(runs) == 10
    assert measured(smoke_store, runs[:1]) != ()
    assert measured(smoke_store, runs[:2]) == ()


def test_boosts_follow_from_the_rows_above_them(smoke_store: Store) -> None:
    table = _made("tableH", smoke_store)
    losses = ("Softmax", "Norm-softmax", "SphereFace", "CosFace", "ArcFace", "Proxy-NCA",
              "SoftTriple", "Proxy-anchor")  # fmt: skip
    gains = []
    for loss in losses:
        plain = table.cell(f"Proxy {loss} BN 512", "recall@2")
        ours = table.cell(f"Proxy PS + {loss} BN 512", "recall@2")
        gains.append(ours.ours[0] - plain.ours[0])
    for boost, rule in (("average", fmean), ("minimum", min), ("maximum", max)):
        cell = table.cell(f"- PS: {boost} boost - -", "recall@2")
        assert cell.ours[0] == pytest.approx(rule(gains))
        supported = replace(cell, ours=(3.0, 3.1, 3.2))
        assert bool(supported.verdict) == (boost == "average")


def test_table_6_matches_the_first_column_of_extended_tables(smoke_store: Store) -> None:
    table = _made("table6", smoke_store)
    for letter, benchmark in (("F", "cub200"), ("J", "sop"), ("L", "inshop")):
        other = _made(f"table{letter}", smoke_store)
        for name in ("ArcFace", "PS + ArcFace"):
            a, b = table.cell(name, benchmark), other.cell(f"Proxy {name} BN 512", "recall@1")
            assert (a.ours, a.paper) == (b.ours, b.paper)


def test_searches_choose_on_validation_and_note_the_choice(smoke_store: Store) -> None:
    for name, search in (
        ("table6", synthesis_search(SMOKE, "cub200", "norm_softmax")),
        ("table5", mixup_search(SMOKE, "sop", "softmax", "manifold_mixup")),
        ("tableD", grid_search(SMOKE, "cifar10")),
    ):
        scores = []
        for run in search.runs:
            assert run.report_epoch == "best"
            result = smoke_store.result(run)
            scores.append(result.validation[search.by])
        found = smoke_store.pick(search)
        assert found == search.runs[scores.index(max(scores))].loss
        (note,) = [note for note in _made(name, smoke_store).notes if " settings. " in note]
        assert f"{search.what}: alpha {found.alpha:g}" in note
        assert "held-out" in note


def test_chosen_cell_is_marked_in_search_tables(smoke_store: Store) -> None:
    for name, columns in (("tableC", 1), ("tableE", 4 * 2)):
        table = _made(name, smoke_store)
        marked = sum(cell.chosen for row in table.rows for cell in row.cells)
        assert marked == columns  # one per search: tableE has two losses in each column


def test_mlrc_tables_read_studies(empty: Store) -> None:
    values = {"precision@1": [0.60, 0.62], "r_precision": [0.3, 0.31], "map@r": [0.2, 0.22]}
    for reg, more in (("none", 0.0), ("proxy_synthesis", 0.1)):
        folder = empty.folder / "mlrc" / f"cub200-cosface-{reg}"
        folder.mkdir(parents=True)
        metrics = {key: [value + more for value in found] for key, found in values.items()}
        study = {"separated": metrics, "concatenated": metrics, "loss": "cosface",
                 "regularizer": reg, "scale": "small", "trials": 5, "folds": 4, "repetitions": 2,
                 "pruned": 3}  # fmt: skip
        (folder / "result.json").write_text(json.dumps(study))
    for name in ("table4", "tableG"):
        table = _made(name, empty, SMALL)
        cell = table.cell("PS + CosFace", "cub200 concatenated precision@1")
        assert cell.ours == pytest.approx((70.0, 72.0))
        assert cell.baseline == pytest.approx((60, 62))
        assert (cell.paper, cell.paper_spread) == (69.52, 0.26)
        assert not cell.paired
        other = table.cell("ArcFace", "cub200 concatenated precision@1")
        assert other.ours == ()
        said = "distorted glyphs 1: 5 trials of 4 folds and 2 repetitions for each row; 6 trials"
        assert any(note.startswith(said) for note in table.notes)
    # A study of another scale is not this table's.
    assert not any(c.ours for row in _made("table4", empty, SMOKE).rows for c in row.cells)
    (empty.folder / "mlrc" / "cub200-cosface-none" / "result.json").write_text("{half")
    cell = _made("table4", empty, SMALL).cell("CosFace", "cub200 concatenated precision@1")
    assert cell.ours == ()


def test_study_uses_the_data_of_its_scale() -> None:
    run, study = SMALL.run("sop", "arcface"), study_of(SMALL, "sop", "arcface", "none")
    assert study.base.split == replace(run.split, train_classes=400)
    assert study.scale.trials == 2
    assert study.base.epochs == 8


def test_table_without_studies_names_the_command(empty: Store) -> None:
    notes = " ".join(_made("tableG", empty, SMALL).notes)
    assert "12 of 12 studies have not been run" in notes
    assert "`proxysynth paper tableG`" in notes


def test_table_a_is_measured_once(smoke_store: Store) -> None:
    first, again = (_made("tableA", smoke_store) for _ in range(2))
    assert first == again
    cell = first.cell("1", "generation")
    assert cell.paper == 0.435
    assert cell.ours[0] > 0
    laid = first.cell("2", "features")
    assert laid.ours == (3.0,)
    assert laid.paper == 3.0


def test_csv_has_every_seed_and_the_paper_value(smoke: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO((smoke["out"] / "table1.csv").read_text())))
    assert len(rows) == 10
    ours = [row for row in rows if row["column"] == "R@1"]
    assert [float(row["paper"]) for row in ours] == [
        number("table1", model=name) for name in ("M1", "M2", "M3", "M4", "PS")
    ]
    for row in ours:
        assert float(row["mean"]) == pytest.approx(fmean(map(float, row["values"].split())))
        assert row["ran_on"] == "distorted glyphs 2"
        assert row["paper_on"] == "CARS196"
        assert row["machine"]
        assert row["scale"] == "smoke"


def test_unmeasured_table_a_shows_only_paper_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path / "empty", read_only=True)
    table = ARTIFACTS["tableA"](SMOKE, store)
    assert isinstance(table, Table)
    assert not any(cell.ours for row in table.rows for cell in row.cells)
    cell = table.cell("1", "generation")
    assert cell.paper == 0.435
    assert "Nothing was measured." in table.notes
    assert not store.folder.exists()


def test_read_only_store_skips_deformations(smoke_store: Store, tmp_path: Path) -> None:
    """Its Runs are finished, but what was measured on their models lies elsewhere."""
    (tmp_path / "runs").symlink_to(smoke_store.folder / "runs")
    store = Store(tmp_path, read_only=True)
    for name in ("table3", "tableB"):
        table = ARTIFACTS[name](SMOKE, store)
        assert isinstance(table, Table)
        assert not any(cell.ours for row in table.rows for cell in row.cells)
    assert not (tmp_path / "kept").exists()


def test_table_3_shows_the_tested_images(smoke_store: Store) -> None:
    sheet = _made("table3", smoke_store).images
    pictures = np.asarray(Image.open(io.BytesIO(sheet)).convert("L"))
    assert pictures.shape[1] > pictures.shape[0] > 300  # nine columns, six rows
    assert pictures.std() > 20


def test_alpha_and_mu_are_searched_per_loss_at_paper_scale(tmp_path: Path) -> None:
    paper = SCALES["paper"].with_roots({"cub200": str(tmp_path)})
    searched = {
        scale.name: {synthesis_search(scale, "cub200", loss) for loss in LOSS_NAMES}
        for scale in (SMALL, paper)
    }
    assert {name: len(found) for name, found in searched.items()} == {"small": 1, "paper": 8}
    for scale, words in ((SMALL, "not for each loss"), (paper, "for each loss and dataset")):
        notes = " ".join(_made("table6", Store(tmp_path / "empty"), scale).notes)
        assert words in notes
        assert "batches of 180, AdamW" in notes


def test_photograph_results_are_shown_beside_the_stand_in(empty: Store) -> None:
    if not shows_photographs(SMALL, "cub200"):
        pytest.skip("results/ is not here")
    table6, tableF = _made("table6", empty, SMALL), _made("tableF", empty, SMALL)
    shown = table6.cell("PS + Norm-softmax", "cub200 photographs")
    again = tableF.cell("Proxy PS + Norm-softmax BN 512", "recall@1 photographs")
    assert len(shown.ours) == len(shown.baseline) == 3
    assert shown == again
    assert "EfficientNet" in tableF.columns[-1].ours
    given = SMALL.with_roots({"cub200": "birds"})  # then they are trained
    assert not shows_photographs(given, "cub200")


def test_last_epoch_is_kept_beside_best_on_test(tmp_path: Path) -> None:
    run = replace(
        Run(), epochs=2, report_epoch="best_on_test", best_by="recall@1",
        split=Split(train_classes=4, test_classes=4), width=0.25, dim=8,
    )  # fmt: skip
    store = Store(tmp_path)
    train(run, store.folder_of(run))
    lines = (store.folder_of(run) / "metrics.jsonl").read_text().splitlines()
    history = [json.loads(line)["recall@1"] for line in lines]
    made = cell_of(store, (run,), "recall@1")
    assert made.ours == (100 * max(history),)
    assert made.last == (100 * history[-1],)
    last = replace(run, report_epoch="last")
    train(last, store.folder_of(last))
    assert cell_of(store, (last,), "recall@1").last == ()  # it is the one that is shown
