"""The service as an ASGI app: the API, the page, the report, and the guard before all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

from proxysynth import __version__
from proxysynth.search.index import Index

from .api import api
from .guard import REPORT_POLICY, Guard
from .limits import Limits
from .refusal import Refused, explain_errors, says
from .service import Service

PAGE = {
    "index.html": "text/html",
    "docs.html": "text/html",
    "docs.css": "text/css",
    "docs.js": "text/javascript",
    "style.css": "text/css",
    "api.js": "text/javascript",
    "main.js": "text/javascript",
    "search.js": "text/javascript",
    "map.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The files of the page: these and no others."""


def create_app(
    index: Index,
    limits: Limits | None = None,
    local: bool = True,
    run: str | os.PathLike[str] | None = None,
) -> Guard:
    """The service over an index.

    Args:
        limits: see `Limits`.
        local: whether only this machine is to be served, see `Guard`.
        run: where the run that made the index is now, if its folder was moved.
    """
    service = Service(index, limits, run)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="Proxysynth search",
        version=__version__,
        description="Nearest pictures of an index.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages fetch scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(api(service))
    _add_pages(app, service)
    explain_errors(app)
    return Guard(app, service.limits, local)


def _add_pages(app: FastAPI, service: Service) -> None:
    """Everything that is not JSON."""
    package = files(__package__).joinpath("page")
    held = {name: package.joinpath(name).read_bytes() for name in PAGE}

    def sent(name: str) -> Response:
        kind = PAGE[name]
        return Response(held[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return sent("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return sent("docs.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in PAGE:
            raise Refused(404, f"the page has no part {name}")
        return sent(name)

    @app.get("/report", response_class=Response, responses=says(404, 421))
    async def report() -> Response:
        """The report of the run that made the index, an HTML page."""
        path = service.live.current.report
        if path is None:
            raise Refused(404, "the run that made this index has left no report")
        data = await asyncio.to_thread(path.read_bytes)
        headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
        return Response(data, media_type="text/html", headers=headers)
