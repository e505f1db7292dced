"""A run's report: chosen and measured here, drawn in report_page.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .command import command
from .examples import Example, choose
from .finished_run import FinishedRun
from .pairs import Pairs, pair_similarities
from .settings import changed


@dataclass(frozen=True, eq=False)
class Report:
    """What a report shows besides the run itself.

    Attributes:
        run: the run.
        right, wrong: queries whose nearest neighbour is of their class, and others.
        pairs: similarities of pairs; None where all test pictures are of one class.
    """

    run: FinishedRun
    right: tuple[Example, ...]
    wrong: tuple[Example, ...]
    pairs: Pairs | None

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON, without its pictures."""
        run = self.run
        return {
            "run": str(run.path),
            "metrics": dict(run.metrics),
            "untrained": dict(run.untrained),
            "worse_than_untrained": list(run.result.worse),
            "epoch": run.result.epoch,
            "chosen": run.result.chosen,
            "data": run.data.to_json(),
            "same_class_more_similar": None if self.pairs is None else self.pairs.order(),
            "settings": run.settings,
            "settings_changed": changed(run.settings, run.defaults),
            "command": command(run),
            "provenance": run.provenance,
        }


def make_report(run: FinishedRun, seed: int = 0) -> Report:
    """The report of a run; the seed draws the queries and pairs that are shown."""
    test = run.embedded()
    right, wrong = choose(test, seed=seed)
    pairs = pair_similarities(test.query, test.labels, test.gallery, test.gallery_labels, seed=seed)
    return Report(run, tuple(right), tuple(wrong), pairs)
