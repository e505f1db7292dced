"""What training did to a backbone, in one sentence: the same in the terminal, JSON and report."""

from __future__ import annotations

from collections.abc import Mapping

from proxysynth.formatting import and_join, metric_name, percent

COMPARED = ("accuracy", "recall@1", "r_precision", "map@r")
"""The measures that are spoken of; the tables have them all."""

Metrics = Mapping[str, float]


def made_worse(trained: Metrics, untrained: Metrics) -> tuple[str, ...]:
    """The compared measures that training lowered."""
    return tuple(key for key in _both(trained, untrained) if trained[key] < untrained[key])


def training_changed(trained: Metrics, untrained: Metrics, tested: str = "unseen classes") -> str:
    """Trained against untrained.

    Args:
        tested: which classes the metrics are about, such as "unseen classes".
    """
    worse = made_worse(trained, untrained)
    better = [key for key in _both(trained, untrained) if trained[key] > untrained[key]]

    def told(keys: list[str] | tuple[str, ...]) -> str:
        return and_join(
            f"{metric_name(key)} {_from_to(untrained[key], trained[key])}" for key in keys
        )

    if not worse and not better:
        return f"Training changed nothing: the untrained backbone is as good on {tested}."
    if not worse:
        return f"On {tested}, training raised {told(better)}."
    if not better:
        return (
            f"Training made it worse on {tested}: it lowered {told(worse)}, so the untrained "
            "backbone is the better one; fewer epochs, a lower learning rate or more classes to "
            "train on may help."
        )
    return (
        f"Training made a part of it worse on {tested}: it lowered {told(worse)}, and raised "
        f"{told(better)}."
    )


def _both(trained: Metrics, untrained: Metrics) -> list[str]:
    keys = [key for key in COMPARED if key in trained and key in untrained]
    # Without a Recall@1 among the ks, P@1 says the same.
    lacking = "recall@1" not in keys and "precision@1" in trained and "precision@1" in untrained
    return ["precision@1", *keys] if lacking else keys


def _from_to(before: float, after: float) -> str:
    """from 95.8 to 96.1; with more digits where fewer would show the same number twice."""
    digits = next((d for d in (1, 2) if percent(before, d) != percent(after, d)), 3)
    return f"from {percent(before, digits)} to {percent(after, digits)}"
