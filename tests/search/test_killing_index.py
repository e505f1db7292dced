"""kill -9 at random moments leaves the old index or the new one; readers never see half of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from proxysynth.search import Index
from search.made_up import made_up, vectors
from training.tiny_pictures import pictures


def kill(run_folder, base: Path, kills: int, seed: int) -> dict:
    base.mkdir()
    pictures(base / "photos", classes=6, each=4)
    program = Path(__file__).with_name("killing_index.py")
    command = [sys.executable, program, run_folder, base, str(kills), str(seed)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_update_leaves_the_old_or_the_new_index(run_folder, tmp_path):
    counts = kill(run_folder, tmp_path / "base", kills=6, seed=0)
    assert counts["killed"] >= 6
    assert counts["old"] > 0
    assert counts["new"] > 0
    assert counts["left"] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_killed_updates(run_folder, tmp_path, seed):
    counts = kill(run_folder, tmp_path / "base", kills=40, seed=seed)
    assert counts["killed"] >= 40
    assert counts["left"] == []


WRITE = """
import sys
from pathlib import Path
from search.made_up import made_up, vectors

for i in range(int(sys.argv[2])):
    made_up(Path(sys.argv[1]), vectors(200 + i % 7, 16, seed=i % 7))
"""


def test_search_while_another_process_writes(tmp_path):
    file, writings = tmp_path / "a.index", 40
    made_up(file, vectors(200, 16, seed=0))
    index = first = Index.open(file)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    seen, searched = set(), 0
    with subprocess.Popen([sys.executable, "-c", WRITE, file, str(writings)], env=environment) as p:
        while p.poll() is None:
            index = index.reload()
            seed = len(index) - 200
            x = vectors(len(index), 16, seed=seed)
            np.testing.assert_array_equal(index.vectors().numpy(), x)
            assert index.search_vectors(x[5:6], 1)[0][0].path == "00000005.jpg"
            seen.add(index.generation)
            searched += 1
    assert p.returncode == 0
    assert len(seen) > 3
    assert searched > len(seen) / 2
    np.testing.assert_array_equal(first.vectors().numpy(), vectors(200, 16, seed=0))
    index.reload()
