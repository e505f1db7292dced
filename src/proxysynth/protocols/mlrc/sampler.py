"""Which parameters a trial gets: Optuna's tree-structured Parzen estimator, seeded by the place.

The seed is that of the study and of the trial's place, not of the worker: a search that was
interrupted goes on with the numbers it would have drawn, and two workers never draw the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .places import index_of
from .storage import import_optuna

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def make_sampler(seed: int, random_trials: int, first: Mapping[str, float] | None) -> BaseSampler:
    """The sampler of a study.

    Args:
        seed: of the study.
        random_trials: so many trials are drawn at random before the model chooses.
        first: the parameters of the first trial; None draws these as well.
    """
    optuna = import_optuna()

    class Seeded(optuna.samplers.BaseSampler):  # type: ignore[name-defined]
        """Asks a fresh estimator for every place."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            place = index_of(trial, study.get_trials(deepcopy=False))
            if first is not None and place == 0:
                return first[name]
            word = int.from_bytes(name.encode(), "big")  # parameters draw apart from each other
            drawn = np.random.SeedSequence([seed, place, word]).generate_state(1)
            tpe = optuna.samplers.TPESampler(
                n_startup_trials=random_trials,
                seed=int(drawn[0]),
                constant_liar=True,  # what others are trying now counts as tried
            )
            return tpe.sample_independent(study, trial, name, distribution)

    made: BaseSampler = Seeded()
    return made
