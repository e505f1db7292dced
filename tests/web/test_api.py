"""The JSON API: what goes in, what comes out, against the index asked directly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from proxysynth.search import Index
from web.shop import CLASSES, EACH

ITEMS = len(CLASSES) * EACH


def brute(index: Index, vector: np.ndarray, k: int, exclude: int | None = None):
    """The nearest by a float64 loop."""
    rows = np.asarray(index.vectors(), dtype=np.float64)
    cosines = rows @ vector / np.linalg.norm(rows, axis=1) / np.linalg.norm(vector)
    order = sorted(range(len(rows)), key=lambda i: (-cosines[i], i))
    return [(i, cosines[i]) for i in order if i != exclude][:k]


def test_health_describes_the_index(client) -> None:
    body = client.get("/api/health").json()
    assert body["status"] == "ok"
    assert (body["items"], body["labels"], body["dim"]) == (ITEMS, len(CLASSES), 16)
    assert body["report"] is True
    assert body["model"] == "run (conv4)"


def test_uploaded_image_of_the_index_is_the_first_hit(client, shop) -> None:
    path = shop / "pictures" / "drum" / "3.jpg"
    answer = client.post("/api/search", files={"file": path.read_bytes()}, data={"k": 5})
    assert answer.status_code == 200
    hits = answer.json()["hits"]
    assert len(hits) == 5
    assert hits[0]["path"] == "drum/3.jpg"
    assert hits[0]["similarity"] == pytest.approx(1, abs=1e-5)
    similarities = [hit["similarity"] for hit in hits]
    assert similarities == sorted(similarities, reverse=True)


def test_vector_search_matches_a_brute_force_loop(client, shop) -> None:
    index = Index.open(shop / "shop.index")
    vector = np.random.default_rng(3).normal(size=16)
    asked = {"vector": vector.tolist(), "k": 7}
    hits = client.post("/api/search/vector", json=asked).json()["hits"]
    expected = brute(index, vector, 7)
    assert [hit["number"] for hit in hits] == [i for i, _ in expected]
    assert [hit["similarity"] for hit in hits] == pytest.approx([s for _, s in expected], abs=1e-5)


def test_vector_search_ignores_vector_length(client) -> None:
    vector = np.random.default_rng(4).normal(size=16)
    answers = [
        client.post("/api/search/vector", json={"vector": (vector * scale).tolist()}).json()
        for scale in (1.0, 1e200, 1e-200)
    ]
    ids = [[hit["number"] for hit in answer["hits"]] for answer in answers]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 10


def test_search_by_item_excludes_the_item(client, shop) -> None:
    index = Index.open(shop / "shop.index")
    body = client.get("/api/items/17/search", params={"k": 6}).json()
    assert body["query"]["path"] == index.paths[17]
    expected = brute(index, np.asarray(index.vectors(17, 18)[0], np.float64), 6, exclude=17)
    assert [hit["number"] for hit in body["hits"]] == [i for i, _ in expected]


def test_threshold_and_label_filter_results(client) -> None:
    every = client.get("/api/items/0/search", params={"k": 100}).json()["hits"]
    assert len(every) == ITEMS - 1
    least = every[9]["similarity"] - 1e-6
    above = client.get("/api/items/0/search", params={"k": 100, "threshold": least}).json()["hits"]
    assert [hit["number"] for hit in above] == [
        hit["number"] for hit in every if hit["similarity"] > least
    ]
    cups = client.get("/api/items/0/search", params={"k": 100, "label": "cup"}).json()["hits"]
    assert [hit["number"] for hit in cups] == [
        hit["number"] for hit in every if hit["label"] == "cup"
    ]


def test_unknown_label_is_rejected_with_a_suggestion(client, shop) -> None:
    data = (shop / "pictures" / "cup" / "0.png").read_bytes()
    vector = {"vector": [1.0] * 16, "label": "cupp"}
    for answer in (
        client.get("/api/items", params={"label": "cupp"}),
        client.get("/api/items/0/search", params={"label": "cupp"}),
        client.post("/api/search", files={"file": data}, data={"label": "cupp"}),
        client.post("/api/search/vector", json=vector),
    ):
        assert answer.status_code == 422
        assert "no label 'cupp'" in answer.json()["error"]
        assert "did you mean 'cup'?" in answer.json()["error"]


def test_upload_settings_in_form_and_query_string_are_equal(client, shop) -> None:
    data = (shop / "pictures" / "cup" / "0.png").read_bytes()
    form = client.post("/api/search", files={"file": data}, data={"k": 3, "label": "hat"}).json()
    params = {"k": 3, "label": "hat"}
    address = client.post("/api/search", files={"file": data}, params=params).json()
    assert form == address
    assert {hit["label"] for hit in form["hits"]} == {"hat"}
    assert len(form["hits"]) == 3


def test_hits_are_marked_by_the_run_threshold(client, shop) -> None:
    least = json.loads((shop / "run" / "result.json").read_text())["calibration"]["thresholds"]
    body = client.get("/api/health").json()["threshold"]
    assert body == least["far=0.01"]
    hits = client.get("/api/items/0/search?k=40").json()["hits"]
    assert [hit["same"] for hit in hits] == [hit["similarity"] >= body for hit in hits]


def test_classes_outside_training_are_marked_unseen(client, shop) -> None:
    seen = set(json.loads((shop / "run" / "run.json").read_text())["classes"])
    assert 0 < len(seen) < len(CLASSES)
    labels = client.get("/api/labels").json()["labels"]
    assert {one["label"]: one["seen"] for one in labels} == {c: c in seen for c in CLASSES}
    assert {one["count"] for one in labels} == {EACH}
    item = client.get("/api/items/0").json()
    assert item["number"] == item["id"] == 0  # the second is an alias
    assert (item["path"], item["label"], item["seen"]) == ("apple/0.png", "apple", "apple" in seen)


def test_map_has_every_image_once(client) -> None:
    body = client.get("/api/map").json()
    assert body["number"] == body["id"] == list(range(ITEMS))
    assert len(body["x"]) == len(body["y"]) == len(body["seen"]) == ITEMS
    assert [body["labels"][code] for code in body["label"]] == sorted(CLASSES * EACH)
    assert np.ptp(body["x"]) > 0.5
    assert np.ptp(body["y"]) > 0.5


def test_images_are_sent_as_jpeg(client, shop) -> None:
    for kind, side in (("thumbnail", 320), ("picture", 1600)):
        answer = client.get(f"/api/items/3/{kind}")
        assert answer.headers["content-type"] == "image/jpeg"
        (shop.parent / "got.jpg").write_bytes(answer.content)
        with Image.open(shop.parent / "got.jpg") as image:
            assert image.format == "JPEG"
            assert max(image.size) <= side


def test_browsing_samples_the_whole_index(client) -> None:
    hits = client.get("/api/items", params={"k": 8}).json()["hits"]
    assert len({hit["label"] for hit in hits}) == 8
    hats = client.get("/api/items", params={"k": 3, "label": "hat"}).json()["hits"]
    assert [hit["label"] for hit in hats] == ["hat"] * 3


@pytest.mark.parametrize(("label", "total"), [(None, ITEMS), ("hat", EACH)])
def test_pagination_returns_every_image_once(client, label, total) -> None:
    params = {"k": 5} if label is None else {"k": 5, "label": label}
    found = []
    for start in range(0, total + 5, 5):
        page = client.get("/api/items", params={**params, "start": start}).json()
        assert page["total"] == total
        found += [hit["number"] for hit in page["hits"]]
    assert len(found) == total
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"vector": [1.0, 2.0]}, 422, "16 dimensions of the index, got 2"),
        ({"vector": [0.0] * 16}, 422, "not all zeros"),
        ({"vector": ["x"] * 16}, 422, "vector.0"),
        ({"vector": [1.0] * 16, "k": 0}, 422, "k must be greater than or equal to 1, got 0"),
        ({"vector": [1.0] * 16, "k": 10**9}, 422, "k must"),
        ({"vector": [1.0] * 16, "k": "many"}, 422, "k must be a valid integer, got 'many'"),
        ({"vector": [1.0] * 16, "threshold": 3}, 422, "threshold must"),
        ({"vektor": []}, 422, "vector is required"),
        ({"vector": []}, 422, "vector must have at least 1 item"),
        ([], 422, "must be a JSON object"),
    ],
)
def test_invalid_vector_search_is_a_one_line_error(client, asked, status, words) -> None:
    answer = client.post("/api/search/vector", json=asked)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 200_000, 400),
        (b'{"vector": [' + b"9" * 10_000 + b"]}", 400),
        (b'{"vector": [1e999]}', 422),
        (b"\xff\xfe\x00", 400),
        (b"", 422),
        (b'{"vector": ' + b"[1]" * 700_000, 413),
    ],
)
def test_malicious_json_bodies_are_rejected(client, body, status) -> None:
    answer = client.post(
        "/api/search/vector", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (status, 422)
    assert list(answer.json()) == ["error"]


def test_nan_vector_is_rejected(client) -> None:
    body = '{"vector": [' + ", ".join(["NaN"] * 16) + "]}"
    answer = client.post("/api/search/vector", content=body)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/items/{ITEMS}", 404),
        ("/api/items/-1", 422),
        ("/api/items/x", 422),
        ("/api/items/0?generation=another", 409),
        ("/api/items/0/search?generation=another", 409),
        ("/api/items/0/thumbnail?generation=another", 409),
        ("/nothing", 404),
        ("/page/app.py", 404),
    ],
)
def test_not_found_errors(client, path, status) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_report_is_served_in_a_sandbox(client, shop) -> None:
    answer = client.get("/report")
    assert answer.content == (shop / "run" / "report.html").read_bytes()
    policy = answer.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"  # the page's own frame
