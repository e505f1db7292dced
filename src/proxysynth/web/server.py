"""Listening on an address, and the server."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxysynth.errors import reason
from proxysynth.search.index import Index
from proxysynth.web.app import create_app
from proxysynth.web.guard import is_loopback
from proxysynth.web.monitor import NonBlockingHandler

HEADER_SECONDS = 30  # until a new connection must have sent a request
KEEP_ALIVE = 30  # seconds until an idle connection is closed
CONNECTIONS = 256  # at once; more get status 503


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; an OSError with one sentence if that is not possible."""
    how = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, port, **how)[0]
    except (socket.gaierror, UnicodeError) as error:
        advice = "check its spelling, or drop --host to serve this machine only"
        raise OSError(f"no address is known for the host {host!r}: {advice}") from error
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        advice = "choose another address with --host or another port with --port (0: any)"
        raise OSError(
            f"cannot listen on port {port} of {host}: {reason(error)}; {advice}"
        ) from error


def url(bound: socket.socket, host: str) -> str:
    port = bound.getsockname()[1]
    everywhere = host in ("", "0.0.0.0", "::")
    name = "localhost" if everywhere else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def serve(
    index: Index, bound: socket.socket, host: str, allow_hosts: Iterable[str] = (), **options: Any
) -> None:
    """Answer requests until interrupted; the options are those of `create_app`.

    SIGHUP loads the index again. If other machines are served, the service also answers to `host`
    and to this machine's name.
    """
    local = is_loopback(host) or is_loopback(str(bound.getsockname()[0]))
    names = [*allow_hosts, *([] if local else [host, socket.gethostname()])]
    app = create_app(index, local=local, allow_hosts=names, **options)

    def reload(*_: object) -> None:
        app.monitor.service.reload = True

    handler = NonBlockingHandler(sys.stderr)
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[handler])
    logging.getLogger("proxysynth").setLevel(logging.INFO)
    with suppress(ValueError, AttributeError):  # not in the main thread; not on this system
        signal.signal(signal.SIGHUP, reload)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=_protocol,  # type: ignore[arg-type]
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        limit_concurrency=CONNECTIONS,
        backlog=2048,
    )
    uvicorn.Server(config).run(sockets=[bound])


def _protocol(**options: Any) -> H11Protocol:
    """A connection that is closed if no request arrives: one that sends its headers byte by byte
    would stay open forever."""
    made = H11Protocol(**options)
    loop = asyncio.get_running_loop()

    def check(last: Any) -> None:
        if made.transport is None or made.transport.is_closing():
            return
        answering = made.cycle is not None and not made.cycle.response_complete
        if made.cycle is last and not answering:
            made.transport.close()
        else:
            loop.call_later(HEADER_SECONDS, check, made.cycle)

    loop.call_later(HEADER_SECONDS, check, None)
    return made
