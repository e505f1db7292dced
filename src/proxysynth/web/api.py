"""The JSON API: its types, from which /openapi.json is made, and its routes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Path, Query, Response, UploadFile
from pydantic import BaseModel, Field

from proxysynth import __version__
from proxysynth.search.index import Hit
from proxysynth.web.images import LARGE, THUMBNAIL
from proxysynth.web.service import Service, Snapshot, as_query

HitCount = Annotated[int, Field(ge=1, le=1000, description="number of images")]
Threshold = Annotated[
    float, Field(ge=-1, le=1, allow_inf_nan=False, description="minimum similarity")
]
Label = Annotated[str, Field(max_length=4096, description="only images with this label")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Refusal(BaseModel):
    """The body of every response that is not a success."""

    error: str = Field(description="what was expected, what was received, what to do")


REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": Refusal,
        "description": "The request is rejected: 400 malformed, 403 from a page of another "
        "origin, 404 not found, 408 too slow, 409 the index has been replaced, 413 too large, "
        "415 not an image, 421 for another host, 422 a value is invalid.",
    },
    "5XX": {"model": Refusal, "description": "503: the service is busy; try again later."},
}


class Item(BaseModel):
    """An image in the index."""

    number: int = Field(description="position in this generation of the index")
    id: int = Field(description="alias of `number`")
    path: str = Field(description="relative to the folder of the index")
    label: str | None
    seen: bool | None = Field(description="whether the model was trained on its label")


class ItemDetails(Item):
    """An image in the index, with the generation of the index."""

    generation: str


class FoundItem(Item):
    """An image in the index and its similarity to the query."""

    similarity: float = Field(description="cosine, in [-1, 1]")
    same: bool | None = Field(description="whether it reaches the threshold of the model")


class SearchResults(BaseModel):
    """The nearest images, most similar first."""

    generation: str = Field(
        description="of the index; send it along with a number of this response"
    )
    query: Item | None = Field(default=None, description="if it is an image in the index")
    hits: list[FoundItem]


class Items(BaseModel):
    """Some images in the index."""

    generation: str
    total: int = Field(description="number of images with this label, or in the index")
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
        description="similarity at or above which two images count as the same class"
    )
    threshold_about: str | None = Field(
        description="what the threshold was fitted to, and its rate of false accepts"
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
    number: list[int]
    id: list[int] = Field(description="alias of `number`")
    x: list[float]
    y: list[float]
    label: list[int] = Field(description="-1 for none")
    labels: list[str]
    seen: list[bool | None]


class SearchSettings(BaseModel):
    """How many neighbors to return, and which."""

    k: HitCount = 10
    threshold: Threshold | None = None
    label: Label | None = None


class VectorQuery(SearchSettings):
    """A search with an embedding."""

    model_config = {"extra": "forbid"}

    vector: Annotated[list[Finite], Field(min_length=1, max_length=65536)]


# ---- Routes

Number = Annotated[int, Path(ge=0, le=2**53, description="the number of an item")]
Generation = Annotated[
    str | None, Query(max_length=200, description="of the index to which the number belongs")
]
Settings = Annotated[SearchSettings, Depends()]

JPEG: dict[str, Any] = {
    "content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}},
    "description": "The image, re-encoded.",
}


def api(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/api", responses=REFUSALS)

    @routes.get("/health", response_model=Health)
    async def health() -> Response:
        """The state of the service, and what it serves."""
        now = service.current
        index, model = now.index, now.index.model.backbone
        if folder := index.model.folder:  # without its path
            model = f"{folder.rstrip('/').rsplit('/', 1)[-1]} ({model})"
        return as_json(
            {
                "status": "ok",
                "index": index.file.name,
                "generation": now.index.generation,
                "items": len(index),
                "dim": index.dim,
                "labels": len(index.label_names),
                "model": model,
                "report": now.report is not None,
                "threshold": now.threshold,
                "threshold_about": now.threshold_about,
                "version": __version__,
            }
        )

    @routes.post("/search", response_model=SearchResults)
    async def search(
        file: Annotated[UploadFile, File(description="an image")],
        query: Settings,
        k: Annotated[HitCount | None, Form()] = None,
        threshold: Annotated[Threshold | None, Form()] = None,
        label: Annotated[Label | None, Form()] = None,
    ) -> Response:
        """Nearest neighbors of an uploaded image, which is not stored.

        Settings are fields of the form or query parameters; the form takes precedence.
        """
        form = {"k": k, "threshold": threshold, "label": label or None}
        given = {name: value for name, value in form.items() if value is not None}
        now = service.current
        try:
            vector = await service.embed_file(now, file.file)
        finally:
            await file.close()
        return results(now, await service.search(now, vector, **{**dict(query), **given}))

    @routes.post("/search/vector", response_model=SearchResults)
    async def search_vector(query: VectorQuery) -> Response:
        """Nearest neighbors of an embedding of any nonzero length."""
        now, wanted = service.current, dict(query)
        vector = as_query(now, wanted.pop("vector"))
        return results(now, await service.search(now, vector, **wanted))

    @routes.get("/items", response_model=Items)
    async def items(
        k: HitCount = 24,
        label: Label | None = None,
        start: Annotated[int | None, Query(ge=0, description="position of the first")] = None,
    ) -> Response:
        """k images, evenly spread over the index, or beginning at position `start`."""
        return as_json(service.current.items(k, label or None, start))

    @routes.get("/items/{number}", response_model=ItemDetails)
    async def item(number: Number, generation: Generation = None) -> Response:
        """Path, label and number of an image."""
        now = service.snapshot(number, generation)
        return as_json({**now.item(number), "generation": now.index.generation})

    @routes.get("/items/{number}/search", response_model=SearchResults)
    async def search_item(
        number: Number, wanted: Settings, generation: Generation = None
    ) -> Response:
        """Nearest neighbors of an image in the index, excluding the image itself."""
        now = service.snapshot(number, generation)
        vector = now.index.vectors(number, number + 1)[0].numpy()
        found = await service.search(now, vector, **dict(wanted), exclude=number)
        return results(now, found, number)

    @routes.get("/items/{number}/thumbnail", response_class=Response, responses={200: JPEG})
    async def thumbnail(number: Number, generation: Generation = None) -> Response:
        """Thumbnail of an image."""
        now = service.snapshot(number, generation)
        return jpeg(await service.image(now, number, THUMBNAIL), generation)

    @routes.get("/items/{number}/picture", response_class=Response, responses={200: JPEG})
    async def picture(number: Number, generation: Generation = None) -> Response:
        """An image, at most 1600 pixels wide and high."""
        now = service.snapshot(number, generation)
        return jpeg(await service.image(now, number, LARGE), generation)

    @routes.get("/labels", response_model=LabelList)
    async def labels() -> Response:
        """Every label and the number of its images."""
        now = service.current
        return as_json({"generation": now.index.generation, "labels": now.labels})

    @routes.get("/map", response_model=MapPoints)
    async def map_points() -> Response:
        """The positions of the images on the map of the embedding space, column by column."""
        return as_json(await service.map())

    return routes


def results(now: Snapshot, found: list[Hit], query: int | None = None) -> Response:
    hits = [
        {
            **now.item(hit.number),
            "similarity": round(hit.similarity, 6),
            "same": None if now.threshold is None else hit.similarity >= now.threshold,
        }
        for hit in found
    ]
    item = None if query is None else now.item(query)
    return as_json({"generation": now.index.generation, "query": item, "hits": hits})


def as_json(value: dict[str, Any]) -> Response:
    """JSON in ASCII: file names may hold bytes that are not UTF-8."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def jpeg(data: bytes, generation: str | None) -> Response:
    """An image; one of a named generation never changes, so browsers may cache it."""
    cache = "private, max-age=86400, immutable" if generation is not None else "no-store"
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": cache})
