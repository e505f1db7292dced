"""Any loss with any regulariser that can hold it goes through the whole protocol."""

from __future__ import annotations

import pytest

from protocols.mlrc.tiny_study import tiny_study
from proxysynth.losses import LOSSES
from proxysynth.protocols.mlrc import run_study
from proxysynth.protocols.mlrc.spaces import build_loss
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training import Resources


def possible(loss: str, regularizer: str) -> bool:
    try:
        build_loss(loss, regularizer, {})
    except ValueError:
        return False
    return True


PAIRS = [(a, b) for a in LOSSES for b in REGULARIZERS if possible(a, b)]


def test_most_pairs_are_possible():
    assert len(PAIRS) == 8 + 8 + 1 + 7 + 7  # none, Proxy Synthesis, Virtual Softmax, the mixups


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "regularizer"), PAIRS)
def test_the_whole_protocol(tmp_path, loss, regularizer):
    study = tiny_study(loss, regularizer, trials=2)
    outcome = run_study(study, tmp_path / "s", resources=Resources(threads=1, workers=0))
    assert set(outcome.best.params) == {item.name for item in study.space}
    assert 0 < outcome.best.value <= 1
    assert 0 < outcome.repetitions[0].concatenated["map@r"] <= 1
