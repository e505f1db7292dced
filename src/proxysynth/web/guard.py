"""What stands before every route: whose host is asked for, how much may come, what headers go out.

Written on the bare ASGI interface, since a body must be counted while it arrives: a header that
announces its length proves nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from .limits import Limits
from .refusal import Refused, answer

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
)
"""A report is a finished page, shown in a frame of ours: nothing in it runs, nothing is fetched."""

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
"""Of every answer; a route may set its own cache and its own policy."""


UPLOADS = "/api/search"
"""Where pictures are sent to."""

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+?)\.?(?::[0-9]{1,5})?")


class Guard:
    """An ASGI app that lets through what is harmless.

    Args:
        app: what answers.
        limits: see `Limits`.
        local: whether the service is bound to loopback. Then only requests that name loopback are
            answered: a foreign page whose name was made to point here (DNS rebinding) is not.
    """

    def __init__(self, app: App, limits: Limits, local: bool) -> None:
        self.app = app
        self.limits = limits
        self.local = local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            asked = Headers(scope=scope)
            if self.local:
                check_host(asked.get("host", ""))
            upload = scope["path"] == UPLOADS
            most = self.limits.upload_bytes if upload else self.limits.body_bytes
            announced = asked.get("content-length", "")
            if announced.isdecimal():
                check_bytes(int(announced), most)
            await self.app(scope, self._counted(receive, most), send_with_headers)
        except Refused as refused:
            if started:  # half an answer is out: nothing can be said any more
                raise
            response = answer(refused.status, refused.sentence)
            await response(scope, receive, send_with_headers)

    def _counted(self, receive: Receive, most: int) -> Receive:
        """`receive`, until too much has come or it has taken too long."""
        received = 0
        deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
        complete = False

        async def counted() -> Message:
            nonlocal received, complete
            if complete:  # what comes now is the news that the client has gone, whenever that is
                return await receive()
            left = deadline - asyncio.get_running_loop().time()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, left))
            except asyncio.TimeoutError as error:
                raise Refused(
                    408,
                    f"the request did not come within {self.limits.body_seconds:g} seconds: "
                    "send it again",
                ) from error
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                check_bytes(received, most)
            return message

        return counted


def check_bytes(count: int, most: int) -> None:
    """An error if a body of so many bytes is too large."""
    if count > most:
        raise Refused(413, f"at most {most / 2**20:.3g} MB are taken here: send less")


def check_host(host: str) -> None:
    """An error unless the Host header names this machine itself."""
    parts = HOST.fullmatch(host.lower())
    if parts is None or not is_loopback(parts[1].strip("[]")):
        raise Refused(421, "this service answers requests for localhost only: open it by that name")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine and no other."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
