"""The JSON API: its routes, each a few lines from words to the service and back."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Path, Query, Response, UploadFile

from proxysynth import __version__

from .refusal import says
from .searching import Found, Wanted
from .service import Service
from .words import (
    Health,
    ItemAnswer,
    Items,
    LabelList,
    Places,
    Results,
    VectorQuestion,
)

MOST = 1000

Number = Annotated[int, Path(ge=0, le=2**53, description="an item's number")]
Generation = Annotated[
    str | None, Query(max_length=200, description="of the index that the number belongs to")
]
K = Annotated[int, Query(ge=1, le=MOST, description="neighbours wanted")]
Threshold = Annotated[
    float | None, Query(ge=-1, le=1, allow_inf_nan=False, description="least similarity")
]
Label = Annotated[str | None, Query(max_length=4096, description="only pictures of this label")]

JPEG: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}},
        "description": "The picture, encoded anew.",
    }
}
OFTEN = says(400, 408, 413, 421)


def api(service: Service) -> APIRouter:
    """The routes under /api."""
    routes = APIRouter(prefix="/api")

    @routes.get("/health", response_model=Health, responses=OFTEN)
    async def health() -> Response:
        """That the service is up, and what it serves."""
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
                "version": __version__,
            }
        )

    @routes.post("/search", response_model=Results, responses=OFTEN | says(415, 422, 503))
    async def search(
        file: Annotated[UploadFile, File(description="a picture")],
        k: Annotated[int | None, Form(ge=1, le=MOST, description="neighbours wanted")] = None,
        threshold: Annotated[
            float | None, Form(ge=-1, le=1, allow_inf_nan=False, description="least similarity")
        ] = None,
        label: Annotated[
            str | None, Form(max_length=4096, description="only pictures of this label")
        ] = None,
        query_k: Annotated[int | None, Query(alias="k", ge=1, le=MOST)] = None,
        query_threshold: Annotated[
            float | None, Query(alias="threshold", ge=-1, le=1, allow_inf_nan=False)
        ] = None,
        query_label: Annotated[str | None, Query(alias="label", max_length=4096)] = None,
    ) -> Response:
        """The pictures nearest to the one that is sent. It is not kept.

        Settings come as fields of the form or in the address; the form's count.
        """
        wanted = Wanted(
            k or query_k or 10,
            query_threshold if threshold is None else threshold,
            label or query_label or None,
        )
        try:
            return results(await service.by_picture(file.file, wanted))
        finally:
            await file.close()

    @routes.post("/search/vector", response_model=Results, responses=OFTEN | says(422, 503))
    async def search_vector(question: VectorQuestion) -> Response:
        """The pictures nearest to an embedding, of any length but 0."""
        wanted = Wanted(question.k, question.threshold, question.label or None)
        return results(await service.by_vector(question.vector, wanted))

    @routes.get("/items", response_model=Items, responses=OFTEN | says(422))
    async def items(k: K = 24, label: Label = None) -> Response:
        """Some pictures, evenly spread over the index."""
        now = service.live.current
        hits = [now.item(number) for number in now.numbers(label or None, k)]
        return as_json({"generation": now.generation, "hits": hits})

    @routes.get("/items/{number}", response_model=ItemAnswer, responses=OFTEN | says(404, 409, 422))
    async def item(number: Number, generation: Generation = None) -> Response:
        """What is known of a picture."""
        now, _ = service.item(number, generation)
        return as_json({**now.item(number), "generation": now.generation})

    @routes.get(
        "/items/{number}/search", response_model=Results, responses=OFTEN | says(404, 409, 422, 503)
    )
    async def search_item(
        number: Number,
        k: K = 10,
        threshold: Threshold = None,
        label: Label = None,
        generation: Generation = None,
    ) -> Response:
        """The pictures nearest to one of the index, itself left out."""
        wanted = Wanted(k, threshold, label or None)
        return results(await service.by_item(number, generation, wanted), number)

    @routes.get(
        "/items/{number}/thumbnail",
        response_class=Response,
        responses=OFTEN | JPEG | says(404, 409, 413, 422, 503),
    )
    async def thumbnail(number: Number, generation: Generation = None) -> Response:
        """A picture, small."""
        return jpeg(await service.thumbnail(number, generation), generation)

    @routes.get(
        "/items/{number}/picture",
        response_class=Response,
        responses=OFTEN | JPEG | says(404, 409, 413, 422, 503),
    )
    async def picture(number: Number, generation: Generation = None) -> Response:
        """A picture, at most 1600 pixels wide and high."""
        return jpeg(await service.picture(number, generation), generation)

    @routes.get("/labels", response_model=LabelList, responses=OFTEN)
    async def labels() -> Response:
        """Every label, with how many pictures have it."""
        now = service.live.current
        return as_json({"generation": now.generation, "labels": now.labels})

    @routes.get("/map", response_model=Places, responses=OFTEN | says(503))
    async def places() -> Response:
        """Where the pictures lie on the map of the embedding space, column by column."""
        return as_json(await service.map())

    return routes


def results(found: Found, asked_with: int | None = None) -> Response:
    """Neighbours as JSON."""
    now = found.snapshot
    hits = [
        {
            "id": hit.number,
            "path": hit.path,
            "label": hit.label,
            "seen": now.was_seen(hit.label),
            "similarity": round(hit.similarity, 6),
        }
        for hit in found.hits
    ]
    query = None if asked_with is None else now.item(asked_with)
    return as_json({"generation": now.generation, "query": query, "hits": hits})


def as_json(told: dict[str, Any]) -> Response:
    """JSON in ASCII: names of files may hold bytes that are no text, which UTF-8 cannot carry."""
    text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def jpeg(data: bytes, generation: str | None) -> Response:
    """A picture; one of a named generation never changes, so browsers may keep it."""
    kept = "private, max-age=86400, immutable" if generation is not None else "no-store"
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": kept})


def model_name(folder: str | None, backbone: str) -> str:
    """The model without the place where it is kept."""
    return backbone if folder is None else f"{folder.rstrip('/').rsplit('/', 1)[-1]} ({backbone})"
