"""Many questions, one product: how a batch of searches is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.search.index import Hit
from proxysynth.training.load import Picture

from .refusal import Refused
from .snapshot import Snapshot


@dataclass(frozen=True)
class Wanted:
    """How many neighbours, and which.

    Args:
        k: at most so many.
        threshold: no less similar than this.
        label: only of this label.
    """

    k: int = 24
    threshold: float | None = None
    label: str | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """A search, by a vector or by an item of the index.

    Args:
        vector: (d,) or None.
        item: an item's number, which is not found itself; used where there is no vector.
        generation: of the index that the item's number belongs to; None for the current one.
        model: whose vector it is; None where the client made it.
    """

    wanted: Wanted
    vector: NDArray[np.float32] | None = None
    item: int = -1
    generation: str | None = None
    model: Any = None


@dataclass(frozen=True, eq=False)
class Found:
    """The neighbours, and the snapshot in which they have their numbers."""

    snapshot: Snapshot
    hits: list[Hit]


class OtherModel(Exception):
    """The index was replaced by one of another model between embedding and searching."""


def search_all(snapshot: Snapshot, questions: Sequence[Question]) -> list[Found | Exception]:
    """Answers in order, by one product for each label asked for: as a rule, one."""
    answers: list[Found | Exception | None] = [None] * len(questions)
    groups: dict[str | None, list[tuple[int, Tensor]]] = {}
    for place, question in enumerate(questions):
        try:
            vector = _vector(snapshot, question)
            groups.setdefault(question.wanted.label, []).append((place, vector))
        except (Refused, OtherModel) as error:
            answers[place] = error
    for label, group in groups.items():
        asked = [questions[place] for place, _ in group]
        found = snapshot.nearest(
            torch.stack([vector for _, vector in group]),
            max(question.wanted.k for question in asked),
            label,
            [None if one.vector is not None else one.item for one in asked],
        )
        for (place, _), question, hits in zip(group, asked, found, strict=True):
            answers[place] = Found(snapshot, _sifted(hits, question.wanted))
    return [answer for answer in answers if answer is not None]


def _vector(snapshot: Snapshot, question: Question) -> Tensor:
    index = snapshot.index
    if question.vector is None:
        check_item(snapshot, question.item, question.generation)
        return index.vectors(question.item, question.item + 1)[0]
    if question.model is not None and not question.model.same_as(index.model):
        raise OtherModel
    if question.vector.shape != (index.dim,):
        raise Refused(
            422,
            f"a vector must have the {index.dim} dimensions of the index, got "
            f"{len(question.vector)}: embed the picture with its model",
        )
    if not np.isfinite(question.vector).all() or not question.vector.any():
        raise Refused(
            422, "a vector must be of finite numbers, not all of them 0: it has no direction"
        )
    return torch.from_numpy(question.vector)


def _sifted(hits: list[Hit], wanted: Wanted) -> list[Hit]:
    least = -2.0 if wanted.threshold is None else wanted.threshold
    return [hit for hit in hits[: wanted.k] if hit.similarity >= least]


def check_item(snapshot: Snapshot, number: int, generation: str | None) -> None:
    """An error unless the number is an item's, in the index that the client means."""
    if generation is not None and generation != snapshot.generation:
        raise Refused(409, "the index was replaced since: search again")
    if not 0 <= number < len(snapshot.index):
        raise Refused(
            404, f"the index has the items 0 to {len(snapshot.index) - 1}, there is no {number}"
        )


def embed_all(
    questions: Sequence[tuple[Snapshot, Picture]],
) -> list[NDArray[np.float32] | Exception]:
    """The embedding of each picture by the model of its snapshot, all of one model at once."""
    answers: list[NDArray[np.float32] | Exception] = [Refused(503, "")] * len(questions)
    groups: dict[int, list[int]] = {}
    for place, (snapshot, _) in enumerate(questions):
        groups.setdefault(id(snapshot), []).append(place)
    for places in groups.values():
        index = questions[places[0]][0].index
        try:
            made = index.embedder().embed([questions[place][1] for place in places], workers=1)
        except (ValueError, OSError, RuntimeError) as error:
            made = None
            failure: Exception = Refused(503, f"the pictures cannot be embedded: {error}")
        for row, place in enumerate(places):
            answers[place] = failure if made is None else made[row].numpy()
    return answers
