"""Requests that no browser sends: bytes on a socket, paths that lead out, headers that lie.

Requests after the service's own description are fuzzed in `web/test_fuzz.py`.
"""

from __future__ import annotations

import io
import random
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from web.serving import serving
from web.test_uploads import corpus

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from proxysynth.search import Index
from proxysynth.web import create_app

METHODS = (
    *("GET", "POST") * 9,
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "get",
    "G\x00T",
    "",
)
VERSIONS = (*("1.1",) * 9, "1.0", "9.9", "x")
PATHS = (
    "/",
    "/api/health",
    "/api/search",
    "/api/search/vector",
    "/api/items",
    "/api/items/0",
    "/api/items/0/picture",
    "/api/items/-1/picture",
    "/api/items/99999999999999999999/search",
    "/api/labels",
    "/api/map",
    "/report",
    "/openapi.json",
)
SECRETS = ("etc/passwd", "run/run.json", "shop.index", "photos/class0/0.png")
LEADS = ("../", "..%2f", "%2e%2e/", "..\\", "..%5c", "....//", "%252e%252e%252f", "/", "file:///")
HEADERS = (
    "Host: localhost",
    "Host: evil.example",
    "Host:",
    "Host: localhost\r\nHost: evil.example",
    "Origin: https://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Content-Length: -1",
    "Content-Length: 99999999999999",
    "Content-Length: 5\r\nContent-Length: 6",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 3",
    "Content-Type: multipart/form-data",
    "Content-Type: multipart/form-data; boundary=b",
    "Content-Type: application/json",
    "Content-Encoding: gzip",
    "Range: bytes=0-,0-,0-",
    "X-Forwarded-For: 127.0.0.1",
    "X: " + "a" * 5000,
    "Expect: 100-continue",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "\x00: \x01",
)
BODIES = (
    b"",
    b"{",
    b'{"vector": [1e999, NaN, null]}',
    b"[" * 20_000,
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../x"\r\n\r\nx\r\n--b--',
    b"--b\r\n" * 500,
    b"ffffffff\r\nx\r\n",
    b"0\r\n\r\nGET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
)


@pytest.fixture(scope="module")
def port(shop):
    """The service on a port of its own, in a thread."""
    with serving(create_app(Index.open(shop / "shop.index"))) as port:
        yield port


def send(port: int, data: bytes, complete: bool = False) -> bytes:
    """What the service answers; the connection is closed after this one request.

    Args:
        complete: whether the service can tell where the request ends. If not, the sender closes
            its side, and the service need not answer any more.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(data)
            if not complete:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:  # closed by the service, which need not read all of it
            pass
    return answer


def request(draw: random.Random) -> bytes:
    """A request of parts that fit together badly, and now and then some noise in it."""
    path = draw.choice(PATHS)
    if draw.random() < 0.4:
        lead = draw.choice(LEADS) * draw.randrange(1, 9)
        path = (
            draw.choice(("/", "/api/items/", "/static/", "/assets/")) + lead + draw.choice(SECRETS)
        )
    if draw.random() < 0.4:
        path += draw.choice(
            ("?k=-1", "?k=1e9", "?generation=%00", "?label=%ff", "?" + "a=b&" * 999)
        )
    head = [f"{draw.choice(METHODS)} {path} HTTP/{draw.choice(VERSIONS)}"]
    if draw.random() < 0.8:
        head.append("Host: localhost")
    body = draw.choice(BODIES)
    head += draw.sample(HEADERS, draw.choice((0, 0, 1, 2, 3)))
    if draw.random() < 0.7:
        head.append(f"Content-Length: {len(body)}")
    data = bytearray("\r\n".join([*head, "Connection: close", "", ""]).encode("latin-1") + body)
    for _ in range(draw.choice((0, 0, 0, 5))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def attack(port: int, seeds: range) -> dict[int, int]:
    """Send requests; returns how often each status came, 0 where the connection was closed."""
    statuses: dict[int, int] = {}
    for seed in seeds:
        data = request(random.Random(seed))
        answer = send(port, data)
        status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0
        assert status < 500, (seed, data[:300], answer[:300])
        for secret in (b"root:x:", b'"identity":', b"proxysynth_index", b"Traceback"):
            assert secret not in answer, (seed, data[:300])
        statuses[status] = statuses.get(status, 0) + 1
    health = send(port, b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert health.startswith(b"HTTP/1.1 200")
    return statuses


def test_fuzzed_requests_do_not_crash_or_leak_files(port) -> None:
    statuses = attack(port, range(400))
    assert statuses.get(200, 0) > 5
    assert sum(statuses.values()) - statuses.get(200, 0) > 200


@pytest.mark.slow
def test_many_fuzzed_requests_do_not_crash_or_leak_files(port, record_property) -> None:
    record_property("statuses", attack(port, range(10_000, 20_000)))


def upload(port: int, picture: bytes) -> int:
    """Search with a picture; returns the status."""
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    body += picture + b"\r\n--b--\r\n"
    head = "POST /api/search HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(body)}\r\n\r\n"
    return int(send(port, head.encode() + body, complete=True).split(b" ", 2)[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
def test_memory_is_bounded_after_attack(shop, tmp_path, record_property) -> None:
    """Requests, broken uploads and the largest that are decoded, eight at a time."""
    command = [sys.executable, "-m", "proxysynth", "serve", str(shop / "shop.index"), "--port", "0"]
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen(command, stderr=out)

    def resident() -> float:
        return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    try:
        while not (found := re.search(r"http://[^:]+:(\d+)", log.read_text())):
            time.sleep(0.1)
        port, largest = int(found[1]), io.BytesIO()
        Image.new("RGBA", (7_000, 7_000)).save(largest, "PNG", compress_level=1)
        pictures = [*corpus().values(), *[largest.getvalue()] * 8]
        assert upload(port, pictures[-1]) == 200
        before = resident()
        attack(port, range(20_000, 22_000))
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda picture: upload(port, picture), pictures))
        assert set(statuses) <= {200, 413, 415, 503}  # 503: too many at once
        assert upload(port, pictures[-1]) == 200
        last = time.monotonic() + 20
        while (after := resident()) >= before + 128 and time.monotonic() < last:
            time.sleep(0.1)
        record_property("megabytes", (before, after))
        assert after < before + 128
    finally:
        server.kill()
        server.wait()
