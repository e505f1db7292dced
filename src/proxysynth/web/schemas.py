"""The types of the API, from which /openapi.json is made."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Refusal(BaseModel):
    """The body of every response that is not a success."""

    error: str = Field(description="what was expected, what was received, what to do")


MEANINGS = {
    400: "The request is malformed.",
    403: "The request comes from a page of another origin.",
    404: "Not found.",
    408: "The request arrived too slowly.",
    409: "The index has been replaced.",
    413: "The request is too large.",
    415: "The file is not an image.",
    421: "The request is for another host.",
    422: "A value is invalid.",
    503: "The service is busy, or the index is being replaced.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    """These statuses for the OpenAPI description of a route."""
    return {status: {"model": Refusal, "description": MEANINGS[status]} for status in statuses}


class Item(BaseModel):
    """An image of the index."""

    id: int = Field(description="its number in this generation of the index")
    path: str = Field(description="relative to the folder of the index")
    label: str | None
    seen: bool | None = Field(description="whether the model was trained on its label")


class ItemDetails(Item):
    """An image of the index, with the generation of the index."""

    generation: str


class FoundItem(Item):
    """An image of the index and its similarity to the query."""

    similarity: float = Field(description="cosine, in [-1, 1]")
    same: bool | None = Field(description="whether it reaches the threshold of the model")


class SearchResults(BaseModel):
    """The nearest images, the most similar first."""

    generation: str = Field(description="of the index; send it along with an id of this response")
    query: Item | None = Field(default=None, description="if it is an image of the index")
    hits: list[FoundItem]


class Items(BaseModel):
    """Some images of the index."""

    generation: str
    hits: list[Item]


class Health(BaseModel):
    """The state of the service, and what it serves."""

    status: str
    index: str
    generation: str
    items: int
    dim: int
    labels: int
    model: str
    report: bool = Field(description="whether the run has a report, at /report")
    threshold: float | None = Field(
        description="the similarity from which on two images are of the same class"
    )
    version: str


class LabelCount(BaseModel):
    label: str
    count: int
    seen: bool | None


class LabelList(BaseModel):
    """Every label of the index."""

    generation: str
    labels: list[LabelCount]


class MapPoints(BaseModel):
    """The map, column by column: position of each image, and its label as an index of `labels`."""

    generation: str
    items: int
    method: str
    id: list[int]
    x: list[float]
    y: list[float]
    label: list[int] = Field(description="-1 for none")
    labels: list[str]
    seen: list[bool | None]


class VectorQuery(BaseModel):
    """A search with an embedding."""

    model_config = {"extra": "forbid"}

    vector: Annotated[list[Finite], Field(min_length=1, max_length=65536)]
    k: int = Field(default=10, ge=1, le=1000, description="number of neighbors")
    threshold: float | None = Field(default=None, ge=-1, le=1, allow_inf_nan=False)
    label: str | None = Field(default=None, max_length=4096)
