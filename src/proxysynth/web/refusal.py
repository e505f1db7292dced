"""How the service says no: a status and one sentence, always as JSON."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException


class Refused(HTTPException):
    """A request that cannot be answered, and why.

    One of starlette's own: any other error that comes up while a body is read would be taken for
    a body that cannot be parsed.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, sentence)
        self.status = status
        self.sentence = sentence


class Refusal(BaseModel):
    """The body of every answer that is not a success."""

    error: str = Field(description="what was expected, what came, what to do")


def says(*statuses: int) -> dict[int | str, dict[str, object]]:
    """These statuses for the OpenAPI description of a route."""
    return {status: {"model": Refusal, "description": MEANINGS[status]} for status in statuses}


MEANINGS = {
    400: "The request cannot be understood.",
    404: "There is no such thing.",
    408: "The request came too slowly.",
    409: "The index has been replaced.",
    413: "The request is too large.",
    415: "The file is not a picture.",
    421: "The request is meant for another host.",
    422: "A value is not what it should be.",
    503: "The service is busy.",
}


def explain_errors(app: FastAPI) -> None:
    """Make every error of the app a `Refusal`."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return answer(error.status, error.sentence)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(422, _sentence(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        told = {
            404: f"there is nothing at {request.url.path}: see /docs for what there is",
            405: f"{request.method} is not possible at {request.url.path}: see /docs for what is",
        }
        sentence = told.get(error.status_code, str(error.detail))
        return answer(error.status_code, sentence, error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return answer(500, "the service failed to answer: its log says why")


def answer(status: int, sentence: str, headers: object = None) -> JSONResponse:
    """A refusal as a response."""
    kept = dict(headers) if isinstance(headers, dict) else None
    # A lone surrogate of a strange name cannot be written as UTF-8: it is shown escaped.
    plain = sentence.encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": " ".join(plain.split())}, status, headers=kept)


def _sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong: where, and what."""
    first = error.errors()[0]
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    name = ".".join(place) or "the request"
    return f"{name}: {first.get('msg', 'is not valid')}; see /docs for what is expected"
