from __future__ import annotations

from dataclasses import replace

from proxysynth.paper.choice import Choice, Option, pick
from proxysynth.training.record import Result
from proxysynth.training.run import Run


def _result(validation: float, test: float) -> Result:
    return Result("x", {"map@r": test}, {}, 1, 1, "best", "", {"map@r": validation})


def test_validation_decides_and_the_test_has_no_say() -> None:
    runs = [Run(seed=seed) for seed in range(4)]
    results = dict(
        zip(runs, map(_result, (0.6, 0.8, 0.75, 0.75), (0.9, 0.9, 0.1, 0.1)), strict=True)
    )
    choice = Choice("x", (Option("a", "a", tuple(runs[:2])), Option("b", "b", tuple(runs[2:]))))
    found = pick(choice, results.get)
    assert found is not None
    assert found.value == "b"


def test_a_search_that_is_not_done_chooses_nothing() -> None:
    runs = [Run(seed=seed) for seed in range(2)]
    choice = Choice("x", tuple(Option(run.seed, "", (run,)) for run in runs))
    assert pick(choice, {runs[0]: _result(1.0, 1.0)}.get) is None
    assert pick(replace(choice, options=()), lambda run: None) is None


def test_a_tie_goes_to_the_first_option() -> None:
    runs = [Run(seed=seed) for seed in range(2)]
    choice = Choice("x", tuple(Option(run.seed, "", (run,)) for run in runs))
    found = pick(choice, lambda run: _result(0.5, 0.5))
    assert found is not None
    assert found.value == 0
