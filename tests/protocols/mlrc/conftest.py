"""One finished study."""

from __future__ import annotations

import pytest

from protocols.mlrc.tiny_study import tiny_study
from proxysynth.protocols.mlrc import run_study
from proxysynth.training import Resources

MACHINE = Resources(threads=1, workers=0)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder and the outcome of a study without interruptions; tests may read it."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    outcome = run_study(tiny_study(trials=3, repetitions=2), folder, resources=MACHINE)
    return folder, outcome
