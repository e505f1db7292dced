"""How much each parameter mattered in a search."""

from __future__ import annotations

from collections.abc import Sequence

from .search import Searched
from .spaces import Space
from .storage import import_optuna

ENOUGH = 4  # whole trials; of fewer, nothing can be said


def importance(space: Space, trials: Sequence[Searched]) -> dict[str, float]:
    """Shares that add up to 1, largest first: what tells the better trials from the others.

    By PED-ANOVA (Watanabe et al., 2023). Empty where there are too few trials, or all alike.
    """
    optuna = import_optuna()
    whole = [trial for trial in trials if not trial.pruned]
    if len(whole) < ENOUGH or len({trial.value for trial in whole}) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    kinds = {
        item.name: optuna.distributions.FloatDistribution(item.low, item.high, log=item.log)
        for item in space
    }
    for trial in whole:
        study.add_trial(
            optuna.trial.create_trial(params=trial.params, distributions=kinds, value=trial.value)
        )
    # The better half against all: the best tenth of a short search would be one trial.
    share = 0.5 if len(whole) < 20 else 0.25
    kind = optuna.importance.PedAnovaImportanceEvaluator
    try:
        evaluator = kind(target_quantile=share)
    except TypeError:  # its name before Optuna 5
        evaluator = kind(baseline_quantile=share)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)
    total = sum(found.values())
    if not total > 0:
        return {}
    shares = {name: float(part / total) for name, part in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
