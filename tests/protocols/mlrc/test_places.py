"""Places are taken once, whoever comes when, dies when, and enqueues what twice."""

from __future__ import annotations

import random

import optuna
import pytest

from proxysynth.protocols.mlrc.places import AGAIN, Queue, places


class Reaper:
    """A watch that knows who is dead."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def dead(self, trial) -> bool:
        return trial.number in self.numbers


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def queue(count: int) -> tuple[Queue, Reaper]:
    reaper = Reaper()
    return Queue(optuna.create_study(direction="maximize"), count, reaper), reaper


def suggest(trial) -> float:
    return trial.suggest_float("x", 0, 1)


def test_each_place_is_claimed_once():
    made, _ = queue(3)
    claimed = [made.claim() for _ in range(5)]
    assert [c.index if c else None for c in claimed] == [0, 1, 2, None, None]
    for c in claimed[:3]:
        made.study.tell(c.trial, 0.5)
    assert made.all_done()


def test_a_dead_workers_place_comes_again_with_its_parameters_and_folds():
    made, reaper = queue(2)
    lost, kept = made.claim(), made.claim()
    x = suggest(lost.trial)
    lost.trial.set_user_attr("fold0", {"value": 0.25})
    reaper.numbers.add(lost.trial.number)
    again = made.claim()
    assert again.index == lost.index
    assert suggest(again.trial) == x
    assert again.trial.user_attrs["fold0"] == {"value": 0.25}
    assert made.claim() is None
    for c, value in ((kept, 0.1), (again, 0.2)):
        made.study.tell(c.trial, value)
    assert made.all_done()
    assert [place.current.value for place in made.places()] == [0.2, 0.1]
    assert [place.times_lost for place in made.places()] == [1, 0]


def test_what_is_given_back_is_claimed_by_the_next():
    made, _ = queue(1)
    first = made.claim()
    x = suggest(first.trial)
    made.give_back(first)
    second = made.claim()
    assert second.index == 0
    assert suggest(second.trial) == x


def test_two_workers_that_enqueue_the_same_lost_place():
    made, _ = queue(1)
    first = made.claim()
    suggest(first.trial)
    made._fail(first.trial.number)
    for _ in range(2):  # both saw the place lost before either had enqueued it
        made.study.enqueue_trial({"x": 0.5}, user_attrs={AGAIN: first.trial.number})
    second = made.claim()
    assert second.index == 0
    assert made.claim() is None
    made.study.tell(second.trial, 0.5)
    assert made.all_done()
    assert made.claim() is None


def test_fresh_trials_beyond_the_count_do_not_count():
    made, _ = queue(2)
    for _ in range(2):
        made.study.tell(made.claim().trial, 0.5)
    made.study.ask()  # a worker that was too late
    assert made.all_done()
    assert len(made.places()) == 2


def test_more_places_may_be_asked_for_later():
    made, reaper = queue(1)
    made.study.tell(made.claim().trial, 0.5)
    late = made.study.ask()
    reaper.numbers.add(late.number)
    made._fail(late.number)
    larger = Queue(made.study, 3, reaper)
    assert not larger.all_done()
    claimed = [c for c in (larger.claim() for _ in range(4)) if c is not None]
    assert sorted(c.index for c in claimed) == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_claims_deaths_and_ends(seed):
    """Workers claim, die and end at random: at the end each place has exactly one value."""
    draw, count = random.Random(seed), 6
    made, reaper = queue(count)
    working = []
    for _ in range(400):
        if made.all_done():
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
    assert made.all_done()
    whole = [t for t in made.study.trials if t.state.name == "COMPLETE"]
    assert len(whole) == count
    roots = [t.user_attrs.get(AGAIN, t.number) for t in whole]
    assert len(set(roots)) == count
    assert [place.index for place in places(made.study.trials, count)] == list(range(count))
