"""A worker is dead when its lease stands still, or its process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import optuna
import pytest

from proxysynth.protocols.mlrc.lease import LEASE, Watch, leased, machine


@pytest.fixture
def study():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study()


def with_lease(study, **lease):
    trial = study.ask()
    trial.set_user_attr(LEASE, lease)
    return trial


def test_the_lease_is_renewed_while_the_block_runs(study):
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


def test_a_lease_that_stands_still_is_dead_by_the_watchers_own_clock(study):
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


def test_a_trial_without_any_lease_is_dead_in_the_end(study):
    now = [0.0]
    watch = Watch(patience=60, clock=lambda: now[0])
    study.ask()
    assert not watch.dead(study.trials[0])
    now[0] = 61
    assert watch.dead(study.trials[0])


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such question")
def test_a_process_of_this_machine_that_is_gone_is_dead_at_once(study):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with_lease(study, at=machine(), pid=gone.pid, count=0)
    with_lease(study, at=machine(), pid=os.getpid(), count=0)
    with_lease(study, at="another machine", pid=gone.pid, count=0)
    assert [Watch().dead(trial) for trial in study.trials] == [True, False, False]
