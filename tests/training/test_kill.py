"""kill -9 at random moments: nothing is lost and nothing is counted twice."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proxysynth.training import Run
from proxysynth.values import encode
from training.sameness import assert_same_outcome


def kill_and_compare(run: Run, folder: Path, kills: int, seed: int) -> None:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(encode(run)))
    program = Path(__file__).with_name("killing.py")
    command = [sys.executable, program, folder / "run.json", folder, str(kills), str(seed)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert sum(counts) == kills
    for name in ("again", *(f"broken{i}" for i in range(len(counts)))):
        assert_same_outcome(folder / name, folder / "unbroken")


def test_training_survives_three_kills(photo_run, tmp_path):
    kill_and_compare(photo_run, tmp_path / "runs", kills=3, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_training_survives_twenty_kills(photo_run, tmp_path, seed):
    run = replace(photo_run, epochs=12, report_epoch="best_on_test", evaluate_every=2)
    kill_and_compare(run, tmp_path / "runs", kills=20, seed=seed)


@pytest.mark.slow
def test_glyph_training_survives_twenty_kills(glyph_run, tmp_path):
    run = replace(glyph_run, epochs=20, optimizer="rmsprop", schedule="one_cycle")
    kill_and_compare(run, tmp_path / "runs", kills=20, seed=3)
