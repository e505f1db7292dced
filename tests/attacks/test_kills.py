"""A scheduler that repeats a command until it succeeds; signals that end a training.

Kills of training and indexing as functions are tested in `training/test_kill.py` and
`search/test_killing_index.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxysynth.training import read_run, train
from proxysynth.training.checkpoint import Checkpoints

# Imports everything once and forks, so that a child is at work within milliseconds. The first
# child is killed when its folder appears, before it has written anything.
SCHEDULER = """
import json, os, random, signal, sys, time
from pathlib import Path
import proxysynth.training.loop, proxysynth.report, proxysynth.search.build, proxysynth.cli.train
from proxysynth.cli import main

words, kills, draw = json.loads(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
first, whole = (Path(name) for name in sys.argv[4:6])

def child(words):
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    try:
        main(words)
    except SystemExit as end:
        sys.stderr.flush()
        os._exit(end.code or 0)
    os._exit(70)

begun = time.perf_counter()
assert os.waitpid(child([str(whole) if word == "OUT" else word for word in words]), 0)[1] == 0
seconds = time.perf_counter() - begun
words = [str(first) if word == "OUT" else word for word in words]
killed, code = 0, None
while code != 0:
    pid = child(words)
    if killed == 0:
        while not first.exists():
            time.sleep(0.0005)
        os.kill(pid, signal.SIGKILL)
    elif killed < kills:
        time.sleep(draw.uniform(0, 0.7 * seconds))
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    killed += code != 0
print(killed)
"""


def schedule(words: list[str], folder: Path, kills: int, seed: int) -> int:
    """Run a command once to its end and once with kills; returns how many there were."""
    program = [sys.executable, "-c", SCHEDULER, json.dumps(words), str(kills), str(seed)]
    done = subprocess.run(
        [*program, str(folder / "killed"), str(folder / "whole")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.splitlines()[-1])


def train_under_kills(shop: Path, folder: Path, kills: int, seed: int) -> int:
    run = read_run(shop / "run").run
    words = ["train", run.data, "--resume", "--out", "OUT", "--epochs", "3", "--json"]
    for name in ("dim", "width", "batch_size", "image_size"):
        words += ["--set", f"{name}={getattr(run, name)}"]
    words += ["--set", "backbone=conv4", "--set", "pretrained=false"]
    killed = schedule(words, folder, kills, seed)
    for name in ("model.safetensors", "embeddings.safetensors", "metrics.jsonl"):
        whole = (folder / "whole" / name).read_bytes()
        assert (folder / "killed" / name).read_bytes() == whole, name
    assert (folder / "killed" / "report.html").exists()
    return killed


def test_training_survives_scheduler_kills(shop, tmp_path) -> None:
    """Also where the kill came before run.json was written."""
    assert train_under_kills(shop, tmp_path, kills=2, seed=0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_training_survives_frequent_scheduler_kills(shop, tmp_path, seed, record_property) -> None:
    record_property("kills", train_under_kills(shop, tmp_path, kills=20, seed=seed))


# Trains in a fork that signals itself after its second step; prints how each one ended.
SIGNALED = """
import json, os, signal, sys
from pathlib import Path
import proxysynth.training.loop, proxysynth.report, proxysynth.cli.train
from proxysynth.cli import main
from torch.optim.optimizer import register_optimizer_step_post_hook

signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored in the background,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and this one under nohup
words, base, ends = json.loads(sys.argv[1]), Path(sys.argv[2]), {}


def train(name):
    steps = []

    def count(*_):
        steps.append(1)
        if len(steps) == 2:
            os.kill(os.getpid(), getattr(signal, name))

    register_optimizer_step_post_hook(count)
    main([*words, "--out", str(base / name)])


for name in sys.argv[3:]:
    pid = os.fork()
    if not pid:
        try:
            train(name)
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(end.code or 0)
        os._exit(70)
    ends[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(ends))
"""


def test_signals_save_a_final_checkpoint(shop, tmp_path) -> None:
    """One message for all, an exit status that names the signal, and nothing is lost."""
    words = ["train", str(shop / "photos"), "--epochs", "2", "--backbone", "conv4", "--json"]
    for setting in ("width=0.25", "dim=8", "image_size=32", "batch_size=4", "pretrained=false"):
        words += ["--set", setting]
    statuses = {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}
    program = [sys.executable, "-c", SIGNALED, json.dumps(words), str(tmp_path), *statuses]
    done = subprocess.run(program, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == statuses
    assert done.stderr.count("interrupted; run the same command to resume") == 3
    assert "Traceback" not in done.stderr
    for name in statuses:
        run = read_run(tmp_path / name)
        loaded = Checkpoints(tmp_path / name / "checkpoint").load(run.identity)
        assert loaded is not None
        assert loaded.state.batch == 2  # within an epoch: written because of the signal


@pytest.mark.parametrize("name", ["model.safetensors", "embeddings.safetensors", "metrics.jsonl"])
def test_damaged_file_of_finished_run_is_repaired(shop, tmp_path, name) -> None:
    folder = Path(shutil.copytree(shop / "run", tmp_path / "run"))
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    run = read_run(folder).run
    train(run, folder)
    assert (folder / name).read_bytes() == whole
    shutil.rmtree(folder / "checkpoint")
    (folder / name).write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=name):
        train(run, folder)
