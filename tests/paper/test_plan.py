from __future__ import annotations

from pathlib import Path

import pytest

from paper.conftest import SMOKED
from proxysynth.cli.paper import run_paper
from proxysynth.cli.parser import parser
from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store, make_plans, requests
from proxysynth.paper.tables.cells import synthesis_search
from proxysynth.protocols.estimates import Estimate, count_images, kind_of, measured_rates, work
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run, Split

SMOKE, SMALL = SCALES["smoke"], SCALES["small"]
ARTIFACTS = load_artifacts()


@pytest.mark.usefixtures("estimated")
def test_plan_starts_no_training(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["table1", "table6", "--scale", "small", "--plan", "--out", str(out), "--json"]
    result = run_paper(parser().parse_args(["paper", *words]))
    assert not out.exists()
    # Table 1: five models, three seeds. Table 6: eight losses on four sets, of which Norm-softmax
    # on one is M1, and a search of six settings per set; after it the same with Proxy Synthesis.
    assert result["missing"] == 5 * 3 + 8 * 4 * 3 - 3 + 6 * 4
    assert result["after_search"] == 8 * 4 * 3
    assert result["finished"] == 0
    assert result["seconds"] > 600
    assert len(result["runs"]) == result["missing"]


@pytest.mark.usefixtures("estimated")
def test_runs_are_shared_between_tables(empty: Store) -> None:
    names = ("table1", "table2", "table3", "table5", "table6", "tableF", "tableH")
    together, each = make_plans({name: ARTIFACTS[name] for name in names}, SMALL, empty)
    apart = sum(len(one.known) for one in each.values())
    assert len(together.known) == len(set(together.known)) < apart - 50


@pytest.mark.usefixtures("estimated")
def test_joint_and_separate_plans_agree(empty: Store) -> None:
    tables = {name: ARTIFACTS[name] for name in ("table1", "table5", "table6", "tableG")}
    plan, each = make_plans(tables, SMOKE, empty)
    alone = {name: make_plans({name: one}, SMOKE, empty) for name, one in tables.items()}
    assert alone == {name: (one, {name: one}) for name, one in each.items()}
    assert set(plan.known) == {run for one in each.values() for run in one.known}
    later = {run for one in each.values() for run in one.later}
    assert set(plan.later) == later - set(plan.known)
    assert plan.later
    assert plan.studies == each["tableG"].studies


def test_table_requests_its_runs_and_studies() -> None:
    search = synthesis_search(SMOKE, "sop", "norm_softmax")
    before = requests([ARTIFACTS["table6"]], SMOKE).runs
    assert set(search.runs) < set(before)
    after = requests([ARTIFACTS["table6"]], SMOKE, lambda choice: choice.runs[0].loss).runs
    assert set(before) < set(after)
    assert {run.loss.alpha for run in set(after) - set(before)} == {search.runs[0].loss.alpha}
    assert not requests([ARTIFACTS["tableA"]], SMOKE).runs  # and measures nothing
    assert len(requests([ARTIFACTS["tableG"]], SMOKE).studies) == 6 * 2


def test_nothing_is_missing_after_smoke_runs(smoke_store: Store) -> None:
    tables = {name: ARTIFACTS[name] for name in SMOKED}
    plan, _ = make_plans(tables, SMOKE, smoke_store)
    assert plan.known == plan.later == ()
    assert plan.done > 100
    assert plan.seconds == 0
    assert "everything" in plan.summary


def test_estimates_use_finished_runs_of_the_same_kind(smoke_store: Store) -> None:
    rates = measured_rates(smoke_store.folder)
    run = SMOKE.run("cars196", NormSoftmax())
    assert rates[kind_of(run)] > 0
    result = smoke_store.result(run)
    assert result.seconds > 0
    estimate = Estimate(smoke_store.folder)
    estimate.finished = {kind_of(run): 10.0}
    assert estimate(run) == pytest.approx(1.0 + work(run) / 10.0)


def test_estimates_without_finished_runs_time_a_few_steps(empty: Store) -> None:
    estimate = Estimate(empty.folder)
    run, longer = (
        SMOKE.run("cars196", NormSoftmax(), epochs=epochs, evaluate_every=1) for epochs in (1, 10)
    )
    seconds = estimate(run)
    assert 1 < seconds < 60
    assert estimate(longer) == pytest.approx(1 + 10 * (seconds - 1))  # timed once
    assert not empty.folder.exists()


def test_steps_of_a_network_with_its_own_pixels_are_timed(empty: Store) -> None:
    run = Run(
        backbone="efficientnet_lite0", pretrained=False, image_size=32, batch_size=4,
        pixels="mean 0.5 0.5 0.5 std 0.5 0.5 0.5",
    )  # fmt: skip
    assert Estimate(empty.folder)(run) > 1


def test_work_counts_training_and_a_third_of_the_tests() -> None:
    split = Split(train_classes=10, test_classes=6, faces_per_class=5)
    assert count_images("glyphs", split) == (50, 96)
    run = Run(split=split, epochs=4, evaluate_every=3)
    assert work(run) == 4 * 50 + 2 * 96 / 3
    held_out = Run(split=split, epochs=4, evaluate_every=3, report_epoch="best")
    assert work(held_out) == 4 * 40 + 2 * 96 / 3
    interpolated = Run(split=split, epochs=4, evaluate_every=3, interpolate="auto")
    assert work(interpolated) == work(held_out)


def test_benchmark_images_are_counted_as_published() -> None:
    assert count_images("inshop:nowhere", Split()) == (25_882, 14_218 + 12_612)
    assert count_images("cifar10:nowhere", Split(train_pictures=2000)) == (2000, 10_000)


def test_missing_data_is_timed_on_random_images(tmp_path: Path) -> None:
    run = Run(data=f"cars196:{tmp_path}", image_size=32, pixels="grey", width=0.25, batch_size=4)
    assert Estimate(tmp_path)(run) > 1


@pytest.mark.parametrize(
    "split",
    [
        Split(train_classes=6, test_classes=4),
        Split(train_classes=6, test_classes=4, faces_per_class=8),
        Split(train_classes=6, test_classes=4, distortion=0.5, pictures_per_class=3),
        Split(train_classes=6, test_classes=4, query_faces=2),
        Split(train_classes=6, test_faces=4),
    ],
)
def test_glyphs_are_counted_without_drawing_them(split: Split) -> None:
    drawn = open_splits(Run(data="glyphs", split=split))
    tested = len(drawn.query) + len(drawn.gallery or ())
    assert count_images("glyphs", split) == (len(drawn.train), tested)
