"""Three worker processes on one study, one of them killed: nothing is lost, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

from proxysynth.protocols.mlrc.places import places
from proxysynth.protocols.mlrc.storage import open_storage

TESTS = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("journal", marks=pytest.mark.slow)])
def test_three_workers_one_killed(tmp_path, kind):
    folder = tmp_path / "study"
    storage = "" if kind == "sqlite" else str(tmp_path / "journal.log")
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("workers.py")), str(folder), storage],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    # The two that lived agree: five trials, one of them run again, and two repetitions.
    first, second = told["outcomes"]
    assert first == second
    assert [trial["index"] for trial in first["trials"]] == list(range(5))
    assert sorted(trial["lost"] for trial in first["trials"]) == [0, 0, 0, 0, 1]
    assert len(first["repetitions"]) == 2

    # All took part. What was finished was not trained again: only the fold that the kill broke off.
    killed, *others = told["began"]
    assert all(others)
    everything = [place for began in told["began"] for place in began]
    assert {place for place in everything if everything.count(place) > 1} == {killed[-1]}
    assert killed[-1] in [place for began in others for place in began]

    # The storage has five whole trials, and the killed one beside the one that took its place.
    where = storage or f"sqlite:///{folder / 'study.db'}"
    study = optuna.load_study(study_name="glyphs-norm_softmax-none", storage=open_storage(where))
    assert sum(t.state.name in ("COMPLETE", "PRUNED") for t in study.trials) == 5
    taken = places(study.trials, 5)
    assert [place.current.value for place in taken] == [t["value"] for t in first["trials"]]
    lost = next(place for place in taken if place.times_lost)
    assert lost.trials[0].state.name == "FAIL"
    assert lost.current.params == lost.trials[0].params
