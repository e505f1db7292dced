"""Nested bars: on a terminal all levels, elsewhere sentences only."""

from __future__ import annotations

import io

from rich.console import Console

from proxysynth.report.terminal import NestedBars


def show(terminal: bool) -> str:
    file = io.StringIO()
    bars = NestedBars(file)
    bars._console = Console(file=file, force_terminal=terminal, width=110, markup=False)
    with bars.task("trials", 5, 2) as trials:
        trials(1, "best MAP@R 61.2  12 min left")
        with bars.task("folds of trial 3", 4) as folds:
            folds(1, "MAP@R 60.1")
            with bars.task("training", 100) as tick:
                tick(10, "epoch 3/20  loss 1.2")
                bars.say("a sentence")
                if terminal:
                    bars._shown.refresh()
    with bars.task("repetitions", 3) as again:
        again(1, "")
    return file.getvalue()


def test_all_levels_on_a_terminal():
    told = show(terminal=True)
    for part in ("trials", "3/5", "best MAP@R 61.2", "12 min left", "  folds of trial 3", "1/4",
                 "    training", "epoch 3/20", "a sentence", "repetitions"):  # fmt: skip
        assert part in told


def test_sentences_only_elsewhere():
    assert show(terminal=False) == "a sentence\n"
