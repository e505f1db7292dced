"""Interruptions, several processes, failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxysynth.errors import NotFinite
from proxysynth.losses import NormSoftmax
from proxysynth.paper import store as plan
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store
from proxysynth.training.callbacks import Tick
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run

SMOKE = SCALES["smoke"]
ONE = Resources(threads=1, workers=0)


class Recorder:
    """Remembers what is said; stops the program at the n-th tick of a bar, as Ctrl-C does."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.sentences: list[str] = []
        self.ticks, self.stop_after = 0, stop_after

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        def tick(pictures: int, note: str) -> None:
            self.ticks += 1
            if self.ticks == self.stop_after:
                raise KeyboardInterrupt

        yield tick


def _runs(count: int) -> list[Run]:
    made = [SMOKE.run("cars196", NormSoftmax(), seed) for seed in range(count)]
    return [run for run in made if run is not None]


def test_interrupted_command_resumes(empty: Store) -> None:
    runs = _runs(3)
    with pytest.raises(KeyboardInterrupt):
        plan.train_missing(runs, empty, ONE, Recorder(stop_after=14), lambda run: 1.0)
    done = [run for run in runs if empty.result(run) is not None]
    assert 0 < len(done) < 3
    before = {run: (empty.folder_of(run) / "result.json").stat().st_mtime_ns for run in done}
    recorder = Recorder()
    assert plan.train_missing(runs, empty, ONE, recorder, lambda run: 1.0) == {}
    assert len(recorder.sentences) == 3 - len(done)
    assert all(empty.result(run) is not None for run in runs)
    for run, moment in before.items():
        assert (empty.folder_of(run) / "result.json").stat().st_mtime_ns == moment
    again = Recorder()
    plan.train_missing(runs, empty, ONE, again, lambda run: 1.0)
    assert again.sentences == []
    assert again.ticks == 0


def test_concurrent_processes_train_no_run_twice(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "proxysynth", "paper", "table1", "--scale", "smoke",
             "--out", str(tmp_path / "out"), "--threads", "1"]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    both = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        for _ in range(2)
    ]
    logs = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    trained = [re.findall(r"^Run \d+ of \d+, about .* left: (.*)$", text, re.M) for text in logs]
    every = [name for names in trained for name in names]
    assert len(every) == len(set(every)) == 5, trained
    assert (tmp_path / "out" / "paper.html").exists()
    # One evaluation each, so trained through once.
    for run in plan.requests(load_artifacts(["table1"]).values(), SMOKE).runs:
        lines = (Store(tmp_path / "out").folder_of(run) / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == 1


def test_run_claimed_by_another_process_is_awaited(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _runs(2)
    held = iter([False, True, True])
    order: list[int] = []

    @contextmanager
    def claim(run: Run) -> Iterator[bool]:
        yield next(held)

    def train(run: Run, folder: Path, **_: object) -> None:
        order.append(run.seed)

    monkeypatch.setattr(empty, "claim", claim)
    monkeypatch.setattr(plan, "train", train)
    monkeypatch.setattr(plan, "POLL", 0.0)
    plan.train_missing(runs, empty, ONE, Recorder(), lambda run: 1.0)
    assert order == [1, 0]  # the held one was passed over and came last


def test_nonfinite_loss_fails_only_its_own_run(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, real = _runs(2), plan.train

    def train(run: Run, folder: Path, **rest: object) -> object:
        if run.seed == 0:
            raise NotFinite("the loss is not finite in step 3", 3, ())
        return real(run, folder, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "train", train)
    recorder = Recorder()
    broken = plan.train_missing(runs, empty, ONE, recorder, lambda run: 1.0)
    assert list(broken) == [runs[0]]
    assert "not finite" in broken[runs[0]]
    assert empty.result(runs[0]) is None
    assert empty.result(runs[1]) is not None


def test_studies_report_to_the_same_progress(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(plan, "run_study", lambda *_, progress, **__: reported.append(progress))
    monkeypatch.setattr(plan, "write_study", lambda *_: None)
    monkeypatch.setattr(plan, "train_missing", lambda *_: {})
    recorder = Recorder()
    monkeypatch.setattr(plan.Estimate, "study", lambda *_: 1.0)
    plan.train_all(load_artifacts(["tableG"]), SMOKE, empty, ONE, recorder)
    assert set(reported) == {recorder}


def test_run_label_shows_unusual_settings() -> None:
    from proxysynth.regularizers import ProxySynthesis

    run = SMOKE.run("cars196", ProxySynthesis(NormSoftmax(), alpha=0.8), 2, report_epoch="best")
    assert plan.label(run) == (
        "NormSoftmax with ProxySynthesis (alpha 0.8) on distorted glyphs 2, validation held out, "
        "1 epoch, seed 2"
    )


def test_runs_of_figure_d_have_unique_labels() -> None:
    from proxysynth.paper.figures.embedding_space import runs_over_time

    labels = [plan.label(run) for run, *_ in runs_over_time(SCALES["small"]).values()]
    assert len(set(labels)) == 4
    assert labels[0].endswith("on distorted glyphs 2, 392 images, 1 epoch, seed 0")
    assert labels[-1].endswith("on distorted glyphs 2, 3 epochs, seed 0")
