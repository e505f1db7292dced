"""A cache of the session's own, and one finished study."""

from __future__ import annotations

import pytest

from protocols.mlrc.tiny_study import tiny_study
from proxysynth.protocols.mlrc import run_study
from proxysynth.training import Resources

MACHINE = Resources(threads=1, workers=0)


@pytest.fixture(scope="session")
def cache_root(tmp_path_factory):
    return tmp_path_factory.getbasetemp() / "mlrc-cache"


@pytest.fixture(autouse=True)
def _own_cache(cache_root, monkeypatch):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(cache_root))


@pytest.fixture(scope="session")
def finished(tmp_path_factory, cache_root):
    """The folder and the outcome of a study without interruptions; tests may read it."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYSYNTH_CACHE", str(cache_root))
        outcome = run_study(tiny_study(trials=3, repetitions=2), folder, resources=MACHINE)
    return folder, outcome
