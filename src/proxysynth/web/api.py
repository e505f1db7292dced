"""The routes of the JSON API."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Path, Query, Response, UploadFile

from proxysynth import __version__

from .schemas import (
    Health,
    ItemDetails,
    Items,
    LabelList,
    MapPoints,
    SearchResults,
    VectorQuery,
    errors,
)
from .service import SearchResult, Service, Wanted

MOST = 1000

Number = Annotated[int, Path(ge=0, le=2**53, description="the number of an item")]
Generation = Annotated[
    str | None, Query(max_length=200, description="of the index to which the number belongs")
]
K = Annotated[int, Query(ge=1, le=MOST, description="number of neighbors")]
Threshold = Annotated[
    float | None, Query(ge=-1, le=1, allow_inf_nan=False, description="minimal similarity")
]
Label = Annotated[str | None, Query(max_length=4096, description="only images with this label")]

JPEG: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}},
        "description": "The image, encoded again.",
    }
}
COMMON = errors(400, 408, 413, 421)
UPLOAD = COMMON | errors(403, 415, 422, 503)
VECTOR = COMMON | errors(403, 422, 503)
ITEM = COMMON | errors(404, 409, 422)


def api(service: Service) -> APIRouter:
    """The routes under /api."""
    routes = APIRouter(prefix="/api")

    @routes.get("/health", response_model=Health, responses=COMMON)
    async def health() -> Response:
        """The state of the service, and what it serves."""
        now = service.live.current
        index = now.index
        return as_json(
            {
                "status": "ok",
                "index": index.file.name,
                "generation": now.generation,
                "items": len(index),
                "dim": index.dim,
                "labels": len(now.names),
                "model": model_name(index.model.folder, index.model.backbone),
                "report": now.report is not None,
                "threshold": now.threshold,
                "version": __version__,
            }
        )

    @routes.post("/search", response_model=SearchResults, responses=UPLOAD)
    async def search(
        file: Annotated[UploadFile, File(description="an image")],
        k: Annotated[int | None, Form(ge=1, le=MOST, description="number of neighbors")] = None,
        threshold: Annotated[
            float | None, Form(ge=-1, le=1, allow_inf_nan=False, description="minimal similarity")
        ] = None,
        label: Annotated[
            str | None, Form(max_length=4096, description="only images with this label")
        ] = None,
        query_k: Annotated[int | None, Query(alias="k", ge=1, le=MOST)] = None,
        query_threshold: Annotated[
            float | None, Query(alias="threshold", ge=-1, le=1, allow_inf_nan=False)
        ] = None,
        query_label: Annotated[str | None, Query(alias="label", max_length=4096)] = None,
    ) -> Response:
        """The images nearest to an uploaded one, which is not stored.

        Settings are fields of the form or query parameters; the form takes precedence.
        """
        wanted = Wanted(
            k or query_k or 10,
            query_threshold if threshold is None else threshold,
            label or query_label or None,
        )
        try:
            return results(await service.by_image(file.file, wanted))
        finally:
            await file.close()

    @routes.post("/search/vector", response_model=SearchResults, responses=VECTOR)
    async def search_vector(query: VectorQuery) -> Response:
        """The images nearest to an embedding of any length but 0."""
        wanted = Wanted(query.k, query.threshold, query.label or None)
        return results(await service.by_vector(query.vector, wanted))

    @routes.get("/items", response_model=Items, responses=COMMON | errors(422))
    async def items(k: K = 24, label: Label = None) -> Response:
        """Some images, evenly spread over the index."""
        now = service.live.current
        hits = [now.item(number) for number in now.sample(label or None, k)]
        return as_json({"generation": now.generation, "hits": hits})

    @routes.get("/items/{number}", response_model=ItemDetails, responses=ITEM)
    async def item(number: Number, generation: Generation = None) -> Response:
        """What is known about an image."""
        now, _ = service.item(number, generation)
        return as_json({**now.item(number), "generation": now.generation})

    @routes.get(
        "/items/{number}/search",
        response_model=SearchResults,
        responses=ITEM | errors(503),
    )
    async def search_item(
        number: Number,
        k: K = 10,
        threshold: Threshold = None,
        label: Label = None,
        generation: Generation = None,
    ) -> Response:
        """The images nearest to one of the index, without itself."""
        wanted = Wanted(k, threshold, label or None)
        return results(await service.by_item(number, generation, wanted), number)

    @routes.get(
        "/items/{number}/thumbnail",
        response_class=Response,
        responses=COMMON | JPEG | errors(404, 409, 413, 422, 503),
    )
    async def thumbnail(number: Number, generation: Generation = None) -> Response:
        """An image, small."""
        return jpeg(await service.thumbnail(number, generation), generation)

    @routes.get(
        "/items/{number}/picture",
        response_class=Response,
        responses=COMMON | JPEG | errors(404, 409, 413, 422, 503),
    )
    async def picture(number: Number, generation: Generation = None) -> Response:
        """An image, at most 1600 pixels wide and high."""
        return jpeg(await service.image(number, generation), generation)

    @routes.get("/labels", response_model=LabelList, responses=COMMON)
    async def labels() -> Response:
        """Every label and the number of its images."""
        now = service.live.current
        return as_json({"generation": now.generation, "labels": now.labels})

    @routes.get("/map", response_model=MapPoints, responses=COMMON | errors(503))
    async def map_points() -> Response:
        """The positions of the images on the map of the embedding space, column by column."""
        return as_json(await service.map())

    return routes


def results(found: SearchResult, query_item: int | None = None) -> Response:
    """Neighbors as JSON."""
    now = found.snapshot
    hits = [
        {
            "id": hit.number,
            "path": hit.path,
            "label": hit.label,
            "seen": now.was_seen(hit.label),
            "similarity": round(hit.similarity, 6),
            "same": None if now.threshold is None else hit.similarity >= now.threshold,
        }
        for hit in found.hits
    ]
    query = None if query_item is None else now.item(query_item)
    return as_json({"generation": now.generation, "query": query, "hits": hits})


def as_json(value: dict[str, Any]) -> Response:
    """JSON in ASCII: file names may hold bytes that are not UTF-8."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def jpeg(data: bytes, generation: str | None) -> Response:
    """An image; one of a named generation never changes, so browsers may cache it."""
    cache = "private, max-age=86400, immutable" if generation is not None else "no-store"
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": cache})


def model_name(folder: str | None, backbone: str) -> str:
    """The model without the path of its folder."""
    return backbone if folder is None else f"{folder.rstrip('/').rsplit('/', 1)[-1]} ({backbone})"
