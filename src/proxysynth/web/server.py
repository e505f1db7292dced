"""Listening: an address that is free, and a server on it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxysynth.search.index import Index

from .app import create_app
from .guard import is_loopback
from .limits import Limits

HEADER_SECONDS = 30
"""Until a connection must have brought a request."""

KEEP_ALIVE = 30
"""Seconds until a connection without a request is closed."""

CONNECTIONS = 256
"""At once; more are turned away."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; an error of one sentence where that cannot be."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise OSError(
            f"no address is known for the host {host!r}: check its spelling, or leave --host out "
            "to serve this machine only"
        ) from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise OSError(_why(host, port, error)) from error
    return bound


def url(bound: socket.socket, host: str) -> str:
    """Where a browser finds it."""
    port = bound.getsockname()[1]
    everywhere = host in ("", "0.0.0.0", "::")
    name = "localhost" if everywhere else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def serve(
    index: Index,
    bound: socket.socket,
    host: str,
    limits: Limits | None = None,
    run: str | os.PathLike[str] | None = None,
) -> None:
    """Answer requests until interrupted."""
    local = is_loopback(host) or is_loopback(str(bound.getsockname()[0]))
    config = uvicorn.Config(
        create_app(index, limits, local, run),
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=_impatient,  # type: ignore[arg-type]
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        limit_concurrency=CONNECTIONS,
        backlog=2048,
    )
    uvicorn.Server(config).run(sockets=[bound])


def _impatient(**how: Any) -> H11Protocol:
    """A connection that is closed if no request comes of it: one that sends its headers letter by
    letter would hold its place for ever."""
    made = H11Protocol(**how)
    loop = asyncio.get_running_loop()

    def look(last: Any) -> None:
        if made.transport is None or made.transport.is_closing():
            return
        answering = made.cycle is not None and not made.cycle.response_complete
        if made.cycle is last and not answering:
            made.transport.close()
        else:
            loop.call_later(HEADER_SECONDS, look, made.cycle)

    loop.call_later(HEADER_SECONDS, look, None)
    return made


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: choose another with --port, 0 takes a free one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} is not allowed to you: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: give one that is with --host"
    return f"cannot listen on port {port} of {host}: {error.strerror or error}"
