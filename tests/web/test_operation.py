"""What an operator needs: metrics, the access log, HEAD, and a prefix without a proxy."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from fastapi.testclient import TestClient
from prometheus_client import parser

from proxysynth.search import Index
from proxysynth.web import create_app


def values(client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The metrics, read by Prometheus's own parser."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def counted(found, method: str, route: str, status: int) -> float:
    labels = (("method", method), ("route", route), ("status", str(status)))
    return found.get(("proxysynth_requests_total", labels), 0.0)


def test_metrics(client) -> None:
    for number in (0, 1):
        assert client.get(f"/api/items/{number}").status_code == 200
    assert client.get("/api/items/999").status_code == 404
    assert client.get("/no/such/place").status_code == 404
    assert client.get("/api/health", headers={"host": "evil.example"}).status_code == 421
    found = values(client)
    assert counted(found, "GET", "/api/items/{number}", 200) == 2
    assert counted(found, "GET", "/api/items/{number}", 404) == 1
    assert counted(found, "GET", "other", 404) == 1
    assert counted(found, "GET", "other", 421) == 1
    key = (("route", "/api/items/{number}"),)
    assert found["proxysynth_request_seconds_count", key] == 3
    assert 0 < found["proxysynth_request_seconds_sum", key] < 60
    assert found["proxysynth_queue", (("stage", "search"),)] == 0
    assert found["proxysynth_queue", (("stage", "embed"),)] == 0
    assert found["proxysynth_index_items", ()] == 48
    assert found["proxysynth_index_loads", ()] == 1
    generation = client.get("/api/health").json()["generation"]
    assert found["proxysynth_index_info", (("generation", generation),)] == 1


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/api/health", "/api/items/0/thumbnail"])
def test_head_matches_get_without_the_body(client, path) -> None:
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(len(got.content))
    assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head("/nothing").status_code == 404


def test_access_log(shop, tmp_path) -> None:
    file = tmp_path / "access.jsonl"
    app = create_app(Index.open(shop / "shop.index"), access_log=str(file))
    with TestClient(app, base_url="http://localhost:8000") as client:
        client.get("/api/items?k=3", headers={"x-forwarded-for": "203.0.113.7"})
        client.head("/")
        file.rename(tmp_path / "access.jsonl.1")  # as a log rotation does
        client.get("/%22%0A%C3%A9%ED%A0%80")  # quoted, a line break, not UTF-8
    first, second = map(json.loads, (tmp_path / "access.jsonl.1").read_text().splitlines())
    (third,) = map(json.loads, file.read_text().splitlines())
    assert first["path"] == "/api/items"
    assert first["forwarded_for"] == "203.0.113.7"
    assert first["status"] == 200
    assert first["bytes"] > 100
    assert first["seconds"] > 0
    assert first["time"].endswith("+00:00")
    assert (second["method"], second["path"]) == ("HEAD", "/")
    assert third["status"] == 404


def test_root_path_prefix(shop) -> None:
    app = create_app(Index.open(shop / "shop.index"), root_path="/shop/")
    with TestClient(app, base_url="http://localhost:8000") as client:
        for prefix in ("", "/shop"):  # removed by the proxy, or not
            assert client.get(f"{prefix}/").headers["content-type"].startswith("text/html")
            assert client.get(f"{prefix}/api/health").json()["items"] == 48
            assert client.get(f"{prefix}/page/main.js").status_code == 200
            data = (shop / "pictures" / "cup" / "0.png").read_bytes()
            assert client.post(f"{prefix}/api/search", files={"file": data}).status_code == 200
        answer = client.get("/shop", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (308, "/shop/")
        assert client.get("/shopping").status_code == 404
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/shop"}]
