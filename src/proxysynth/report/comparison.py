"""Runs side by side, as one value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .disagreement import Disagreement, disagreement
from .finished_run import FinishedRun, read_finished
from .groups import Contrast, Group, contrast, group_by_seed
from .numbers import listed, measures
from .settings import differing


@dataclass(frozen=True, eq=False)
class Comparison:
    """What several runs have to say together.

    Attributes:
        runs: in the order given; the first is what the others are held against.
        groups: the same runs, those that differ only in the seed together.
        measures: the names of what was measured.
        contrasts: each group against the first, for each measure.
        settings: path -> its value for each group, only where these differ.
        disagreements: one run of each other group against one of the first.
        remarks: sentences that a reader must know.
    """

    runs: tuple[FinishedRun, ...]
    groups: tuple[Group, ...]
    measures: tuple[str, ...]
    contrasts: tuple[Contrast, ...]
    settings: dict[str, tuple[str, ...]]
    disagreements: tuple[Disagreement, ...]
    remarks: tuple[str, ...]

    def group(self, letter: str) -> Group:
        return next(group for group in self.groups if group.letter == letter)

    def letter_of(self, run: FinishedRun) -> str:
        return next(group.letter for group in self.groups if run in group.runs)

    def difference(self, run: FinishedRun, measure: str) -> float | None:
        """A run's measure less the first run's; None where they cannot be compared."""
        first = self.runs[0]
        if run is first or not _same_test(first, run):
            return None
        if measure not in run.metrics or measure not in first.metrics:
            return None
        return run.metrics[measure] - first.metrics[measure]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON, without its pictures."""
        runs = [
            {
                "run": str(run.path),
                "group": self.letter_of(run),
                "seed": run.run.seed,
                "metrics": dict(run.metrics),
                "difference": {key: self.difference(run, key) for key in self.measures},
            }
            for run in self.runs
        ]
        groups = [
            {
                "group": group.letter,
                "name": group.name,
                "seeds": list(group.seeds),
                "measures": {
                    key: None if (spread := group.spread(key)) is None else asdict(spread)
                    for key in self.measures
                },
            }
            for group in self.groups
        ]
        return {
            "runs": runs,
            "groups": groups,
            "contrasts": [asdict(item) for item in self.contrasts],
            "settings": {path: list(values) for path, values in self.settings.items()},
            "queries": [item.to_json() for item in self.disagreements],
            "remarks": list(self.remarks),
        }


def compare(folders: Sequence[str | os.PathLike[str]]) -> Comparison:
    """Read finished runs and set them side by side.

    Raises:
        ValueError: for fewer than two folders, one given twice, one that is no finished run.
    """
    if len(folders) < 2:
        raise ValueError(f"comparing needs at least two runs, got {len(folders)}: name another")
    seen: set[str] = set()
    for folder in folders:
        real = os.path.realpath(folder)
        if real in seen:
            raise ValueError(f"{os.fspath(folder)} is given twice: name two different runs")
        seen.add(real)
    return compare_runs([read_finished(folder) for folder in folders])


def compare_runs(runs: Sequence[FinishedRun]) -> Comparison:
    """The same of runs that were read already."""
    runs = distinct(runs)
    groups = group_by_seed(runs)
    first, *others = groups
    keys = measures(*(run.metrics for run in runs))
    alike = [group for group in others if _same_test(first.runs[0], group.runs[0])]
    contrasts = [
        made for group in alike for key in keys if (made := contrast(first, group, key)) is not None
    ]
    return Comparison(
        runs=tuple(runs),
        groups=groups,
        measures=tuple(keys),
        contrasts=tuple(contrasts),
        settings=_settings(groups),
        disagreements=tuple(_disagreements(groups)),
        remarks=tuple(_remarks(groups)),
    )


def distinct(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs under names that tell them apart: where two folders are called the same, with as
    much of the way to them as it takes."""
    parts = [run.path.resolve().parts for run in runs]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    return [
        replace(run, name=os.path.join(*part[-depth:]))
        for run, part in zip(runs, parts, strict=True)
    ]


def _same_test(a: FinishedRun, b: FinishedRun) -> bool:
    return a.data.test_fingerprint == b.data.test_fingerprint


def _settings(groups: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """Where the groups differ; their seeds are lists."""
    found = differing([{**group.runs[0].settings, "seed": list(group.seeds)} for group in groups])
    prints = tuple(group.runs[0].data.fingerprint for group in groups)
    if len(set(prints)) > 1:  # a folder may change while its name stays
        found["data fingerprint"] = prints
    return found


def _disagreements(groups: Sequence[Group]) -> list[Disagreement]:
    """A run of each group against one of the first, of the same seed where there is one."""
    pairs: list[tuple[FinishedRun, FinishedRun]] = []
    if len(groups) == 1:
        pairs = [(groups[0].runs[0], groups[0].runs[1])]
    for group in groups[1:]:
        shared = [seed for seed in groups[0].seeds if seed in group.seeds]
        seed = shared[0] if shared else None
        pairs.append((_of_seed(groups[0], seed), _of_seed(group, seed)))
    return [
        disagreement(a.name, a.embedded(), b.name, b.embedded())
        for a, b in pairs
        if _same_test(a, b)
    ]


def _of_seed(group: Group, seed: int | None) -> FinishedRun:
    return next((run for run in group.runs if run.run.seed == seed), group.runs[0])


def _remarks(groups: Sequence[Group]) -> list[str]:
    first, *others = groups
    remarks = []
    apart = [g for g in others if not _same_test(first.runs[0], g.runs[0])]
    if apart:
        remarks.append(
            f"{listed(group.letter for group in apart)} and {first.letter} were tested on "
            "different data, so their numbers cannot be compared."
        )
    rules = {group.letter: group.runs[0].result.chosen for group in groups}
    if len(set(rules.values())) > 1:
        told = listed(f"{rule!r} in {letter}" for letter, rule in rules.items())
        remarks.append(
            f"The epoch reported was chosen by different rules, {told}, which alone can make a "
            "difference."
        )
    return remarks
