"""The guard in front of every route: which hosts and origins may ask, and how much they may send.

Written on the bare ASGI interface, because a body must be counted while it arrives: a header that
announces its length proves nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse, RedirectResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from proxysynth.web.monitor import Monitor

POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
)
"""A report is a finished page, shown in a frame of ours: it runs and fetches nothing."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every response; a route may set its own cache and policy."""

UPLOADS = "/api/search"
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Limits:
    """What a request, and the service as a whole, may cost.

    Args:
        upload_bytes: of an uploaded image, counted while it arrives.
        body_bytes: of any other body: parsed numbers take far more memory than their text.
        pixels: of an image, read from its header before anything is decoded.
        body_seconds: until the whole body must have arrived.
        answer_seconds: until the response must be ready.
        map_points: images on the map; of more, an even sample is shown.
    """

    upload_bytes: int = 20 * 2**20
    body_bytes: int = 2 * 2**20
    pixels: int = 50_000_000
    body_seconds: float = 30.0
    answer_seconds: float = 60.0
    map_points: int = 20_000


class Refused(HTTPException):
    """A request that is not served, and why.

    An exception of starlette: any other one that is raised while FastAPI reads a body is reported
    as a malformed body.
    """


def error_response(
    status: int, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A status and a message, as JSON."""
    # A lone surrogate of a file name cannot be written as UTF-8: it is escaped.
    plain = detail.encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": " ".join(plain.split())}, status, headers=headers)


@dataclass(frozen=True, eq=False)
class Guard:
    """An ASGI app that forwards permitted requests and records all of them: see `create_app`."""

    app: ASGIApp
    limits: Limits
    local: bool
    monitor: Monitor
    allow_hosts: frozenset[str] = frozenset()
    root_path: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begun, method, status, sent = time.perf_counter(), scope["method"], 0, 0
        scope = {**scope, "root_path": self.root_path}
        if method == "HEAD":
            scope["method"] = "GET"  # the server drops the body

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    response_headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        headers = Headers(scope=scope)
        try:
            check_host(headers.get("host", ""), self.local, self.allow_hosts)
            if method not in ("GET", "HEAD", "OPTIONS"):
                check_origin(headers)
            if self.root_path and scope["path"] == self.root_path:  # URLs in the page are relative
                slash = RedirectResponse(f"{self.root_path}/", 308)
                return await slash(scope, receive, send_with_headers)
            upload = scope["path"].removeprefix(self.root_path) == UPLOADS
            most = self.limits.upload_bytes if upload else self.limits.body_bytes
            announced = headers.get("content-length", "")
            if announced.isdecimal():
                check_bytes(int(announced), most)
            await self.app(scope, self._counted(receive, most), send_with_headers)
        except Refused as refused:
            if status:  # a part of the response is out already
                raise
            response = error_response(refused.status_code, refused.detail)
            await response(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - begun
            self.monitor.record(scope, method, status or 500, sent, seconds)

    def _counted(self, receive: Receive, most: int) -> Receive:
        """`receive`, until too much has arrived or it takes too long."""
        received, complete, seconds = 0, False, self.limits.body_seconds
        deadline = asyncio.get_running_loop().time() + seconds

        async def counted() -> Message:
            nonlocal received, complete
            if complete:  # the next message says that the client has gone
                return await receive()
            left = deadline - asyncio.get_running_loop().time()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, left))
            except asyncio.TimeoutError as error:
                detail = f"the request did not arrive within {seconds:g} seconds: send it again"
                raise Refused(408, detail) from error
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                check_bytes(received, most)
            return message

        return counted


def check_bytes(count: int, most: int) -> None:
    if count > most:
        raise Refused(413, f"expected at most {most / 2**20:.3g} MB: send less")


def check_host(host: str, local: bool, allowed: frozenset[str] = frozenset()) -> None:
    """An error unless the Host header is one by which the service may be addressed.

    A foreign page whose name was made to resolve to this machine (DNS rebinding) sends its own
    name. So a service on loopback accepts names and addresses of loopback, any other one also IP
    addresses, and both the names in `allowed`.
    """
    parts = HOST.fullmatch(host.lower())
    name = parts[1].strip("[]") if parts else ""
    if name in allowed or is_loopback(name) or (not local and is_address(name)):
        return
    served = "localhost only" if local else "its IP address only"
    detail = f"this service accepts requests for {served}: use that, or add --allow-host NAME"
    raise Refused(421, detail)


def check_origin(headers: Headers) -> None:
    """An error if a page of another origin sends the request (cross-site request forgery)."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        foreign = site.lower() not in ("same-origin", "none")
    else:  # an old browser, or not a browser
        host = headers.get("host", "").lower()
        foreign = origin is not None and urlsplit(origin.lower()).netloc != host
    if foreign:
        raise Refused(403, "a page of another origin may not send requests to this service")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine and no other."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
