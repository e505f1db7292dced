from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Choice
from proxysynth.paper.store import Store
from proxysynth.training.inference import load
from proxysynth.training.run import Run
from proxysynth.training.run_folder import Result, write_result

SEARCH = Choice("scale", tuple(Run(loss=NormSoftmax(scale=scale)) for scale in (10.0, 20.0)))


def test_measurement_is_cached_per_key(empty: Store) -> None:
    calls = []

    def compute() -> dict[str, float]:
        calls.append(1)
        return {"a": 0.5}

    run = Run(seed=1)
    assert empty.cached("thing", [run, 3], compute) == {"a": 0.5}
    assert empty.cached("thing", [run, 3], compute) == {"a": 0.5}
    assert len(calls) == 1
    empty.cached("thing", [run, 4], compute)
    empty.cached("other", [run, 3], compute)
    assert len(calls) == 3


def test_damaged_measurement_is_repeated_and_failed_one_is_not_stored(empty: Store) -> None:
    empty.cached("thing", 1, lambda: 7)
    (path,) = (empty.folder / "kept").iterdir()
    path.write_text("{half")
    assert empty.cached("thing", 1, lambda: 8) == 8
    assert json.loads(path.read_text())["value"] == 8

    def fails() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        empty.cached("thing", 2, fails)
    assert len(list((empty.folder / "kept").iterdir())) == 1


def test_read_only_store_measures_nothing(empty: Store) -> None:
    reader = Store(empty.folder, read_only=True)
    assert reader.cached("thing", 1, lambda: 7) is None
    assert not empty.folder.exists()
    empty.cached("thing", 1, lambda: 7)
    assert reader.cached("thing", 1, lambda: 8) == 7


def test_missing_result_is_none(empty: Store) -> None:
    run = Run()
    assert empty.result(run) is None
    assert empty.on_models("thing", [run], 1, lambda model: 7) == []
    assert run.identity in str(empty.folder_of(run))
    assert not empty.folder.exists()  # looking makes nothing


def _pick(store: Store, *scores: tuple[float, float]) -> Any:
    """The loss that a search chose whose Runs have these validation and test scores."""
    for run, (validation, test) in zip(SEARCH.runs, scores, strict=False):
        metrics, held_out = {"map@r": test}, {"map@r": validation}
        result = Result(run.identity, metrics, {}, 1, 1, "best", "", held_out)
        store.folder_of(run).mkdir(parents=True)
        write_result(store.folder_of(run), result)
    return store.pick(SEARCH)


def test_search_is_decided_on_validation_classes(empty: Store) -> None:
    assert _pick(empty, (0.7, 0.9), (0.75, 0.1)) == SEARCH.runs[1].loss


def test_unfinished_search_picks_none_and_tie_picks_the_first(empty: Store) -> None:
    assert empty.pick(Choice("x", ())) is None
    assert _pick(Store(empty.folder / "half"), (1.0, 1.0)) is None
    assert _pick(Store(empty.folder / "tie"), (0.5, 0.5), (0.5, 0.5)) == SEARCH.runs[0].loss


def test_claimed_run_is_locked_until_its_process_ends(empty: Store) -> None:
    run = Run()
    holder = (
        "import sys\n"
        "from proxysynth.paper.store import Store\n"
        "from proxysynth.training.run import Run\n"
        "with Store(sys.argv[1]).claim(Run()) as mine:\n"
        "    print(mine, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holder, str(empty.folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout.readline().strip() == "True"
        with empty.claim(run) as mine:
            assert not mine
    finally:
        other.kill()
        other.wait()
    with empty.claim(run) as mine:
        assert mine
    with empty.claim(run) as mine, empty.claim(Run(seed=5)) as another:
        assert mine
        assert another


def test_exclusive_lock_is_held_by_one_thread(empty: Store) -> None:
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with empty.exclusive():
            inside.set()
            time.sleep(0.3)
            order.append("first is done")

    other = threading.Thread(target=first)
    other.start()
    assert inside.wait(10)
    with empty.exclusive():
        order.append("second")
    other.join()
    assert order == ["first is done", "second"]


def test_finished_run_has_its_result_and_model(smoke_store: Store) -> None:
    from proxysynth.paper.scale import SCALES

    run = SCALES["smoke"].run("cars196", NormSoftmax())
    result, model = smoke_store.result(run), load(smoke_store.folder_of(run))
    assert result.run == run.identity
    assert model.run == run
    assert Path(model.folder) == smoke_store.folder_of(run)
