"""What stands before every route."""

from __future__ import annotations

import asyncio
import json
from unittest.mock import Mock

import pytest

from proxysynth.web.guard import Guard, Limits, Refused, check_host, is_loopback


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "127.0.0.1:80", "127.9.9.9", "[::1]:8000",
     "LOCALHOST", "localhost."],
)  # fmt: skip
def test_local_host_names_are_accepted(host) -> None:
    check_host(host, local=True)
    check_host(host, local=False)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
     "10.0.0.1", "localhost:8000.evil.example", "[::2]:80", "::1", "0.0.0.0", "localhost:1@evil"],
)  # fmt: skip
def test_other_host_names_are_rejected_on_loopback(host) -> None:
    with pytest.raises(Refused, match="localhost only"):
        check_host(host, local=True)


@pytest.mark.parametrize("host", ["evil.example", "shop.example.evil", "", "localhost:1@evil"])
def test_remote_requests_need_an_address_or_an_allowed_host(host) -> None:
    allowed = frozenset(["shop.example"])
    for good in ("10.0.0.1:8000", "[fe80::1]", "shop.example", "Shop.Example.:80"):
        check_host(good, False, allowed)
    with pytest.raises(Refused, match="--allow-host"):
        check_host(host, False, allowed)


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({}, False),  # not a browser
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:8000"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://evil.example"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:9000"}, True),
        ({"origin": "http://localhost:8000"}, False),
        ({"origin": "http://localhost:9000"}, True),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
    ],
)
def test_cross_origin_upload_is_rejected(client, shop, headers, foreign) -> None:
    data = (shop / "pictures" / "cup" / "0.png").read_bytes()
    answer = client.post("/api/search", files={"file": data}, headers=headers)
    assert answer.status_code == (403 if foreign else 200)
    vector = {"vector": [1.0] * 16}
    answer = client.post("/api/search/vector", json=vector, headers=headers)
    assert answer.status_code == (403 if foreign else 200)
    assert client.get("/api/health", headers=headers).status_code == 200


def test_is_loopback() -> None:
    assert is_loopback("localhost")
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example")


def call(guard: Guard, chunks: list[bytes], headers=(), delay: float = 0.0):
    """A request by hand: status, headers, body."""
    sent, left = [], list(chunks)

    async def receive():
        await asyncio.sleep(delay)
        body = left.pop(0) if left else b""
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    asked = [(b"host", b"localhost"), *headers]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": asked}
    asyncio.run(guard(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:])


async def reads_everything(scope, receive, send):
    count, more = 0, True
    while more:
        message = await receive()
        count += len(message["body"])
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(count).encode()})


def test_body_size_is_limited_whatever_content_length_says() -> None:
    guard = Guard(reads_everything, Limits(body_bytes=1000), local=True, monitor=Mock())
    assert call(guard, [b"x" * 500, b"x" * 500])[2] == b"1000"
    status, _, body = call(guard, [b"x" * 100] * 50, [(b"content-length", b"10")])
    assert status == 413
    assert "send less" in json.loads(body)["error"]


def test_large_content_length_is_rejected_before_reading() -> None:
    guard = Guard(reads_everything, Limits(body_bytes=1000), local=True, monitor=Mock())
    chunks = [b"x"] * 9
    assert call(guard, chunks, [(b"content-length", b"1001")])[0] == 413


def test_slow_body_times_out() -> None:
    guard = Guard(reads_everything, Limits(body_seconds=0.05), local=True, monitor=Mock())
    status, _, body = call(guard, [b"x"] * 1000, delay=0.02)
    assert status == 408
    assert "did not arrive within" in json.loads(body)["error"]


def test_every_response_has_security_headers(client) -> None:
    for path in (
        "/",
        "/page/main.js",
        "/api/health",
        "/nothing",
        "/api/items/0/thumbnail",
    ):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


def test_unknown_host_is_rejected_unless_allowed(shop) -> None:
    from fastapi.testclient import TestClient

    from proxysynth.search import Index
    from proxysynth.web import create_app

    for allow, status in (([], 421), (["evil.example"], 200)):
        app = create_app(Index.open(shop / "shop.index"), local=False, allow_hosts=allow)
        with TestClient(app, base_url="http://evil.example") as client:
            assert client.get("/api/health").status_code == status
