"""What the API says, as the types that its description is made from."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Item(BaseModel):
    """A picture of the index."""

    id: int = Field(description="its number in this generation of the index")
    path: str = Field(description="under the index's folder")
    label: str | None
    seen: bool | None = Field(description="whether the model was trained on its label")


class ItemAnswer(Item):
    """A picture of the index, with the index it belongs to."""

    generation: str


class FoundItem(Item):
    """A picture of the index and how similar it is to the question."""

    similarity: float = Field(description="cosine, in [-1, 1]")


class Results(BaseModel):
    """The nearest pictures, the most similar first."""

    generation: str = Field(description="of the index; give it back to be sure of the ids")
    query: Item | None = Field(default=None, description="what was asked with, if of the index")
    hits: list[FoundItem]


class Items(BaseModel):
    """Some pictures of the index."""

    generation: str
    hits: list[Item]


class Health(BaseModel):
    """That the service is up, and what it serves."""

    status: str
    index: str
    generation: str
    items: int
    dim: int
    labels: int
    model: str
    report: bool = Field(description="whether the run has left a report, at /report")
    version: str


class LabelCount(BaseModel):
    label: str
    count: int
    seen: bool | None


class LabelList(BaseModel):
    """Every label of the index."""

    generation: str
    labels: list[LabelCount]


class Places(BaseModel):
    """The map: for each picture shown, its place, and its label as a number in `labels`."""

    generation: str
    items: int
    method: str
    id: list[int]
    x: list[float]
    y: list[float]
    label: list[int] = Field(description="-1 for none")
    labels: list[str]
    seen: list[bool | None]


class VectorQuestion(BaseModel):
    """A search by an embedding."""

    model_config = {"extra": "forbid"}

    vector: Annotated[list[Finite], Field(min_length=1, max_length=65536)]
    k: int = Field(default=10, ge=1, le=1000, description="neighbours wanted")
    threshold: float | None = Field(default=None, ge=-1, le=1, allow_inf_nan=False)
    label: str | None = Field(default=None, max_length=4096)
