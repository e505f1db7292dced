"""Workers that share a study: slots are taken once, dead workers are found, nothing is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from proxysynth.protocols.mlrc.workers import (
    AGAIN,
    LEASE,
    Queue,
    StorageFailed,
    Watch,
    hide_password,
    leased,
    machine,
    open_storage,
    slots_of,
    storage_errors,
)

TESTS = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class Reaper:
    """A watch that knows who is dead."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def dead(self, trial) -> bool:
        return trial.number in self.numbers


def queue(count: int) -> tuple[Queue, Reaper]:
    reaper = Reaper()
    return Queue(optuna.create_study(direction="maximize"), count, reaper), reaper


def all_done(queue: Queue) -> bool:
    slots = queue.slots()
    return len(slots) == queue.count and all(slot.done for slot in slots)


def suggest(trial) -> float:
    return trial.suggest_float("x", 0, 1)


def test_each_slot_is_claimed_once():
    made, _ = queue(3)
    claimed = [made.claim() for _ in range(5)]
    assert [c.index if c else None for c in claimed] == [0, 1, 2, None, None]
    for c in claimed[:3]:
        made.study.tell(c.trial, 0.5)
    assert all_done(made)


def test_slot_of_a_dead_worker_keeps_its_parameters_and_folds():
    made, reaper = queue(2)
    lost, kept = made.claim(), made.claim()
    x = suggest(lost.trial)
    lost.trial.set_user_attr(LEASE, {"at": "here", "pid": 1, "count": 0})
    lost.trial.set_user_attr("fold0", {"value": 0.25})
    reaper.numbers.add(lost.trial.number)
    again = made.claim()
    assert again.index == lost.index
    assert suggest(again.trial) == x
    assert again.trial.user_attrs["fold0"] == {"value": 0.25}
    assert made.claim() is None
    for c, value in ((kept, 0.1), (again, 0.2)):
        made.study.tell(c.trial, value)
    assert all_done(made)
    assert [slot.current.value for slot in made.slots()] == [0.2, 0.1]
    assert [slot.times_lost for slot in made.slots()] == [1, 0]


def test_returned_slot_is_claimed_next():
    made, _ = queue(1)
    first = made.claim()
    x = suggest(first.trial)
    made.give_back(first.trial.number)
    second = made.claim()
    assert second.index == 0
    assert suggest(second.trial) == x


def test_lost_slot_in_the_optuna_queue_is_claimed_once():
    made, _ = queue(1)
    first = made.claim()
    suggest(first.trial)
    made.give_back(first.trial.number)
    for _ in range(2):  # as earlier versions enqueued it
        made.study.enqueue_trial({"x": 0.5}, user_attrs={AGAIN: first.trial.number})
    second = made.claim()
    assert second.index == 0
    assert made.claim() is None
    made.study.tell(second.trial, 0.5)
    assert all_done(made)
    assert made.claim() is None


def _claim_lost(path, barrier, found):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    reaper = Reaper()
    reaper.numbers.add(0)
    made = Queue(optuna.load_study(study_name="s", storage=open_storage(path)), 1, reaper)
    barrier.wait()
    claimed = made.claim()
    found.put(None if claimed is None else suggest(claimed.trial))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", ["study.db", "journal.log"])
def test_concurrent_workers_claim_a_lost_slot_once(tmp_path, name):
    context = multiprocessing.get_context("fork")
    for round in range(4):
        path = str(tmp_path / f"{round}{name}")
        study = optuna.create_study(
            study_name="s", storage=open_storage(path), direction="maximize"
        )
        x = suggest(study.ask())
        barrier, found = context.Barrier(3), context.Queue()
        workers = [
            context.Process(target=_claim_lost, args=(path, barrier, found)) for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        claimed = [found.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join()
        assert sorted(claimed, key=str) == sorted([x, None, None], key=str)


def test_surplus_trials_are_ignored():
    made, _ = queue(2)
    for _ in range(2):
        made.study.tell(made.claim().trial, 0.5)
    made.study.ask()  # a worker that was too late
    assert all_done(made)
    assert len(made.slots()) == 2


def test_slots_can_be_added_later():
    made, reaper = queue(1)
    made.study.tell(made.claim().trial, 0.5)
    late = made.study.ask()
    reaper.numbers.add(late.number)
    made.give_back(late.number)
    larger = Queue(made.study, 3, reaper)
    assert not all_done(larger)
    claimed = [c for c in (larger.claim() for _ in range(4)) if c is not None]
    assert sorted(c.index for c in claimed) == [1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_random_claims_deaths_and_completions_fill_every_slot_once(seed):
    """Workers claim, die and end at random: at the end each place has exactly one value."""
    draw, count = random.Random(seed), 6
    made, reaper = queue(count)
    working = []
    for _ in range(400):
        if all_done(made):
            break
        act = draw.random()
        if act < 0.5:
            claimed = made.claim()
            if claimed is not None:
                suggest(claimed.trial)
                working.append(claimed)
        elif working:
            claimed = working.pop(draw.randrange(len(working)))
            if act < 0.7:
                reaper.numbers.add(claimed.trial.number)
            elif act < 0.75:
                reaper.numbers |= {claimed.trial.number, made.study.ask().number}  # two at once
            elif made.study.trials[claimed.trial.number].state.name == "RUNNING":
                made.study.tell(claimed.trial, 1.0)
    assert all_done(made)
    whole = [t for t in made.study.trials if t.state.name == "COMPLETE"]
    assert len(whole) == count
    roots = [t.user_attrs.get(AGAIN, t.number) for t in whole]
    assert len(set(roots)) == count
    assert [slot.index for slot in slots_of(made.study.trials, count)] == list(range(count))


@pytest.fixture
def study():
    return optuna.create_study()


def with_lease(study, **lease):
    trial = study.ask()
    trial.set_user_attr(LEASE, lease)
    return trial


def test_lease_is_renewed_while_the_block_runs(study):
    trial = study.ask()
    with leased(trial, seconds=0.01):
        end = time.monotonic() + 10
        while study.trials[0].user_attrs.get(LEASE, {}).get("count", 0) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
    after = study.trials[0].user_attrs[LEASE]
    assert (after["at"], after["pid"]) == (machine(), os.getpid())
    time.sleep(0.05)
    assert study.trials[0].user_attrs[LEASE] == after


def test_stale_lease_expires_by_the_clock_of_the_watcher(study):
    now = [0.0]
    watch = Watch(patience=60, clock=lambda: now[0])
    trial = with_lease(study, at="another machine", pid=1, count=7)
    assert not watch.dead(study.trials[0])
    now[0] = 59
    trial.set_user_attr(LEASE, {"at": "another machine", "pid": 1, "count": 8})
    assert not watch.dead(study.trials[0])
    now[0] = 118
    assert not watch.dead(study.trials[0])
    now[0] = 120
    assert watch.dead(study.trials[0])


def test_trial_without_a_lease_expires(study):
    now = [0.0]
    watch = Watch(patience=60, clock=lambda: now[0])
    study.ask()
    assert not watch.dead(study.trials[0])
    now[0] = 61
    assert watch.dead(study.trials[0])


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such question")
def test_ended_local_process_is_dead_immediately(study):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with_lease(study, at=machine(), pid=gone.pid, count=0)
    with_lease(study, at=machine(), pid=os.getpid(), count=0)
    with_lease(study, at="another machine", pid=gone.pid, count=0)
    assert [Watch().dead(trial) for trial in study.trials] == [True, False, False]


def test_storage_path_selects_journal_or_sqlite(tmp_path):
    journal = open_storage(str(tmp_path / "journal.log"))
    assert isinstance(journal, optuna.storages.JournalStorage)
    for text in (str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b.db'}"):
        assert isinstance(open_storage(text), optuna.storages.RDBStorage)
    assert {path.name for path in tmp_path.iterdir()} >= {"a.db", "b.db"}


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////nowhere/at/all/study.db",
        "/nowhere/at/all/journal.log",
        "postgresql://me:secret@nowhere.invalid/studies",
        "nosuchdatabase://host/studies",
    ],
)
def test_unreachable_storage_error_hides_the_password(text, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # before the second attempt
    with pytest.raises(StorageFailed) as failed:
        open_storage(text)
    told = str(failed.value)
    assert hide_password(text) in told
    assert "secret" not in told
    assert "\n" not in told


def test_lost_storage_is_a_one_line_error():
    with pytest.raises(StorageFailed, match="gone away"), storage_errors("sqlite:///x.db"):
        raise optuna.exceptions.StorageInternalError("gone away")


def test_missing_training_file_is_not_a_storage_error():
    with pytest.raises(FileNotFoundError), storage_errors("sqlite:///x.db"):
        raise FileNotFoundError("weights.pth")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("journal", marks=pytest.mark.slow)])
def test_three_workers_with_one_killed(tmp_path, kind):
    folder = tmp_path / "study"
    storage = "" if kind == "sqlite" else str(tmp_path / "journal.log")
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("three_workers.py")), str(folder), storage],
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
    study = optuna.load_study(
        study_name="glyphs-norm_softmax-none-smoke", storage=open_storage(where)
    )
    assert sum(t.state.name in ("COMPLETE", "PRUNED") for t in study.trials) == 5
    taken = slots_of(study.trials, 5)
    assert [slot.current.value for slot in taken] == [t["value"] for t in first["trials"]]
    lost = next(slot for slot in taken if slot.times_lost)
    assert lost.trials[0].state.name == "FAIL"
    assert lost.current.params == lost.trials[0].params
