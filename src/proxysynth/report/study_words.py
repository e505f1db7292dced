"""A study's numbers as words, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .numbers import count

TITLES = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}


def method(result: Mapping[str, Any]) -> str:
    """Loss and regulariser: "norm_softmax with proxy_synthesis"."""
    regularizer = result["regularizer"]
    return result["loss"] + ("" if regularizer == "none" else f" with {regularizer}")


def amount(result: Mapping[str, Any]) -> str:
    """How much was done, printed with every table."""
    pruned = f", {result['pruned']} of them pruned" if result["pruned"] else ""
    alone = result.get("queries_without_positive", 0)
    left_out = f"; {count(alone, 'unseen picture')} alone in a class, left out" if alone else ""
    return (
        f"scale {result['scale']}: {count(result['trials'], 'trial')}{pruned}, "
        f"{count(result['folds'], 'fold')}, {count(result['repetitions'], 'repetition')}{left_out}"
    )


def dimensions(result: Mapping[str, Any], kind: str) -> str:
    """separated (128-dim), concatenated (512-dim)."""
    dim = result["dim"]
    if dim is None:
        return kind
    return f"{kind} ({dim * (result['folds'] if kind == 'concatenated' else 1)}-dim)"


def with_interval(spread: Mapping[str, float | None]) -> str:
    """71.20 ± 0.31, in per cent."""
    mean, half = spread["mean"], spread["ci95"]
    assert mean is not None
    return f"{100 * mean:.2f}" + ("" if half is None else f" ± {100 * half:.2f}")


def number(value: float) -> str:
    """A parameter with three digits that count."""
    return f"{value:.3g}"


def state(trial: Mapping[str, Any]) -> str:
    """What became of a trial."""
    parts = ["pruned"] if trial["pruned"] else []
    if trial["note"]:
        parts.append("diverged")
    if trial["lost"]:
        parts.append(f"run again {count(trial['lost'], 'time')}")
    return ", ".join(parts)


def short(name: str) -> str:
    """A parameter without the part it belongs to: regularizer.mu -> mu."""
    return name.rpartition(".")[2]
