"""Checkpoints and results for all ranks: the first reads what every rank needs, and tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from proxysynth.distributed.process_group import Ranks
from proxysynth.training.checkpoint import Checkpoints, Loaded, State
from proxysynth.training.record import Result


def newest_checkpoint(checkpoints: Checkpoints, identity: str) -> Loaded | None:
    """The newest whole checkpoint, for every rank; None at the very start."""
    ranks = checkpoints.ranks
    if ranks.first:
        checkpoints.drop()
    if checkpoints.rows is not None:
        return checkpoints.load(identity)
    return _told(checkpoints.load(identity) if ranks.first else None, ranks)


def checkpoint_at(checkpoints: Checkpoints, step: int, identity: str) -> Loaded:
    """The checkpoint of a step, for every rank; `Damaged` where it is not whole."""
    ranks = checkpoints.ranks
    if checkpoints.rows is not None:
        return checkpoints.read(step, identity)
    loaded = _told(checkpoints.read(step, identity) if ranks.first else None, ranks)
    assert loaded is not None
    return loaded


def shared_result(result: Result | None, ranks: Ranks) -> Result | None:
    """The first rank's result, on all of them."""
    if ranks.world == 1:
        return result
    told = ranks.tell(None if result is None else asdict(result))
    return None if told is None else Result(**{**told, "notes": tuple(told["notes"])})


@contextmanager
def after_the_first(ranks: Ranks) -> Iterator[None]:
    """The first rank does what is in here before the others: it fills the caches that they use."""
    if not ranks.first:
        ranks.wait()
    yield
    if ranks.first:
        ranks.wait()


def _told(loaded: Loaded | None, ranks: Ranks) -> Loaded | None:
    """What the first rank has read, on all of them; their folders need not be the same."""
    if ranks.world == 1:
        return loaded
    state = ranks.tell(None if loaded is None else asdict(loaded.state))
    if state is None:
        return None
    tensors = ranks.tell_tensors({} if loaded is None else loaded.tensors)
    faults = tuple(ranks.tell(None if loaded is None else list(loaded.faults)))
    return Loaded(State(**{**state, "history": tuple(state["history"])}), tensors, faults)
