"""The search service as an ASGI app: the API, the page, the report, and the guard around them."""

from __future__ import annotations

import asyncio
import os
import re
import reprlib
from collections.abc import Iterable
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from proxysynth import __version__
from proxysynth.search.index import Index
from proxysynth.search.index_file import UnknownLabel
from proxysynth.web.api import REFUSALS, api
from proxysynth.web.guard import REPORT_POLICY, Guard, Limits, Refused, error_response
from proxysynth.web.monitor import Monitor
from proxysynth.web.service import Service

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""The files of the page, by suffix. Not by `mimetypes`, which Windows's registry may change."""

EXPECTED = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "model_attributes_type": "must be a JSON object, with the content type application/json",
    "value_error": "must be a file",
}
"""What was expected, by pydantic's type of error, where its own message is unclear."""


def create_app(
    index: Index,
    limits: Limits | None = None,
    local: bool = True,
    run: str | os.PathLike[str] | None = None,
    allow_hosts: Iterable[str] = (),
    root_path: str = "",
    access_log: str | None = None,
) -> Guard:
    """The search service over an index.

    Args:
        local: whether only this machine is served: see `guard.check_host`.
        run: the folder of the run that made the index, if it was moved.
        allow_hosts: further host names by which the service may be addressed.
        root_path: the prefix under which a reverse proxy serves it, such as "/shop".
        access_log: a file for one JSON line per request, or "-" for standard output.
    """
    prefix = root_path.rstrip("/")
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise ValueError(f"root_path must be a path such as /shop, got {root_path!r}")
    service = Service(index, limits, run)
    monitor = Monitor(service, access_log)

    app = FastAPI(
        title="Proxysynth search",
        version=__version__,
        description="Nearest images of an index.",
        lifespan=lambda _: service.running(),
        docs_url=None,  # FastAPI's pages load scripts from another host; there is /openapi.json
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(api(service))
    _add_pages(app, service, monitor)
    _explain_errors(app)
    names = frozenset(name.lower().rstrip(".") for name in allow_hosts)
    return Guard(app, service.limits, local, monitor, names, prefix)


def _add_pages(app: FastAPI, service: Service, monitor: Monitor) -> None:
    """Everything that is not JSON."""
    page_files = files(__package__).joinpath("page").iterdir()
    contents = {file.name: file.read_bytes() for file in page_files}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return await page_file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in contents:
            raise Refused(404, f"the page has no file {name}")
        headers = {"Cache-Control": "no-cache"}
        kind = TYPES[os.path.splitext(name)[1]]
        return Response(contents[name], media_type=kind, headers=headers)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        text = generate_latest(monitor.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    @app.get("/report", response_class=Response, responses=REFUSALS)
    async def report() -> Response:
        """The report of the run that made the index, an HTML page."""
        path = service.current.report
        if path is None:
            raise Refused(404, "the run that made this index has no report")
        data = await asyncio.to_thread(path.read_bytes)
        headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
        return Response(data, media_type="text/html", headers=headers)


def _explain_errors(app: FastAPI) -> None:
    """Make every error a `Refusal`."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][1:])) or "the body"  # without "body" or "query"
        # "Input should be a valid number, unable to parse ..." as the end of a sentence.
        expected = re.sub(r"^\w+ should", "must", first["msg"].partition(",")[0])
        expected = expected.removesuffix(" after validation")
        got = first["input"]
        was = f", got {reprlib.repr(got)}" if isinstance(got, (str, int, float)) else ""
        return error_response(422, f"{name} {EXPECTED.get(first['type'], expected)}{was}")

    @app.exception_handler(UnknownLabel)
    async def unknown_label(_: Request, error: UnknownLabel) -> JSONResponse:
        return error_response(422, str(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        detail = error.detail
        if not isinstance(error, Refused):
            detail += f" ({request.method} {request.url.path}): see /openapi.json for the routes"
        return error_response(error.status_code, detail, error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return error_response(500, "the service failed to answer: see its log")
