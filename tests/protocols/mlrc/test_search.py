"""The search: what is drawn, and which parameter matters."""

from __future__ import annotations

import random

import optuna
import pytest

from proxysynth.protocols.mlrc.search import importance, make_sampler
from proxysynth.protocols.mlrc.spaces import space_of
from proxysynth.protocols.mlrc.workers import AGAIN

FIRST = {"a": 0.5, "b": 2.0}


def trial_of(study) -> dict[str, float]:
    trial = study.ask()
    a, b = trial.suggest_float("a", 0, 1), trial.suggest_float("b", 1, 10, log=True)
    study.tell(trial, -((a - 0.3) ** 2))
    return {"a": a, "b": b}


def study_of(storage, seed=0, first=None):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage, study_name="s", sampler=make_sampler(seed, 3, first),
        direction="maximize", load_if_exists=True,
    )  # fmt: skip


def test_resumed_search_draws_the_same_parameters():
    unbroken = study_of(optuna.storages.InMemoryStorage())
    expected = [trial_of(unbroken) for _ in range(8)]
    storage = optuna.storages.InMemoryStorage()
    broken = [trial_of(study_of(storage)) for _ in range(8)]  # another process each time
    assert broken == expected
    assert len({item["a"] for item in expected}) == 8


def test_seed_changes_drawn_parameters():
    draws = [trial_of(study_of(optuna.storages.InMemoryStorage(), seed)) for seed in (0, 1)]
    assert draws[0]["a"] != draws[1]["a"]


def test_first_trial_uses_start_values():
    study = study_of(optuna.storages.InMemoryStorage(), first=FIRST)
    assert trial_of(study) == FIRST
    assert trial_of(study) != FIRST


def test_retried_trial_draws_its_missing_parameters():
    storages = [optuna.storages.InMemoryStorage() for _ in range(2)]
    whole = trial_of(study_of(storages[0]))
    study = study_of(storages[1])
    lost = study.ask()
    a = lost.suggest_float("a", 0, 1)  # killed before it had drawn b
    study.tell(lost, state=optuna.trial.TrialState.FAIL)
    study.enqueue_trial({"a": a}, user_attrs={AGAIN: lost.number})
    assert trial_of(study) == whole


def test_sampler_converges_to_the_optimum():
    study = study_of(optuna.storages.InMemoryStorage())
    drawn = [trial_of(study)["a"] for _ in range(40)]
    early, late = drawn[:5], drawn[-10:]
    assert sum(abs(a - 0.3) for a in late) / 10 < sum(abs(a - 0.3) for a in early) / 5


SPACE = space_of("cosface", "proxy_synthesis")


def searched(n: int, value) -> optuna.Study:
    """A search of random trials, with these values of their parameters."""
    draw, made = random.Random(0), optuna.create_study(direction="maximize")
    kind = optuna.distributions.FloatDistribution
    distributions = {item.name: kind(item.low, item.high, log=item.log) for item in SPACE}
    for _ in range(n):
        params = {item.name: draw.uniform(item.low, item.high) for item in SPACE}
        made.add_trial(
            optuna.create_trial(value=value(params), params=params, distributions=distributions)
        )
    return made


@pytest.mark.parametrize("decides", ["loss.m3", "regularizer.mu"])
def test_decisive_parameter_has_highest_importance(decides):
    shares = importance(searched(50, lambda params: 1 / (1 + params[decides])))
    assert next(iter(shares)) == decides
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {item.name for item in SPACE}


def test_importance_of_too_few_or_equal_trials_is_empty():
    assert importance(searched(3, lambda params: params["loss.m3"])) == {}
    assert importance(searched(9, lambda params: 0.5)) == {}
