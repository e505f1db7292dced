"""An index that is replaced while it is served: no question is lost, the next sees the new one."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from PIL import Image

from proxysynth.search import Index
from proxysynth.web import create_app
from proxysynth.web.service import Service
from web.made_index import write_vectors


def serving(file):
    app = create_app(Index.open(file))
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def until(true, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_replaced_index_is_reloaded_and_old_numbers_are_rejected(tmp_path) -> None:
    draw = np.random.default_rng(0)
    write_vectors(tmp_path / "an.index", draw.normal(size=(30, 8)))
    with serving(tmp_path / "an.index") as client:
        old = client.get("/api/health").json()
        write_vectors(tmp_path / "an.index", draw.normal(size=(40, 12)))
        until(lambda: client.get("/api/health").json()["items"] == 40)
        new = client.get("/api/health").json()
        assert new["dim"] == 12
        assert new["generation"] != old["generation"]
        answer = client.get("/api/items/3", params={"generation": old["generation"]})
        assert answer.status_code == 409
        assert answer.json()["error"] == "the index has been replaced: search again"
        assert len(client.get("/api/map").json()["number"]) == 40


def test_snapshot_is_unchanged_when_the_index_is_replaced(tmp_path) -> None:
    draw = np.random.default_rng(1)
    write_vectors(tmp_path / "an.index", draw.normal(size=(30, 8)), "old")
    service = Service(Index.open(tmp_path / "an.index"))
    taken = service.current
    rows = taken.index.vectors().numpy().copy()
    write_vectors(tmp_path / "an.index", draw.normal(size=(9, 8)), "new")
    service.check()
    assert len(service.current.index) == 9
    assert service.current.index.paths[0] == "new0000000.jpg"
    assert taken.index.paths[29] == "old0000029.jpg"
    assert np.array_equal(taken.index.vectors().numpy(), rows)


def test_index_without_its_model_is_searched_by_item(tmp_path) -> None:
    write_vectors(tmp_path / "an.index", np.random.default_rng(0).normal(size=(30, 8)))
    with serving(tmp_path / "an.index") as client:
        image = io.BytesIO()
        Image.new("RGB", (32, 32)).save(image, "PNG")
        answer = client.post("/api/search", files={"file": image.getvalue()})
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("the model of this index cannot be loaded")
        assert len(client.get("/api/items/3/search").json()["hits"]) == 10
        assert client.get("/api/items/3/thumbnail").status_code == 404  # its files are gone, too


@pytest.mark.parametrize("what", ["gone", "junk", "empty"])
def test_invalid_replacement_keeps_the_old_index(tmp_path, caplog, what) -> None:
    file = tmp_path / "an.index"
    write_vectors(file, np.random.default_rng(2).normal(size=(5, 4)))
    service = Service(Index.open(file))
    taken = service.current
    file.unlink()
    if what != "gone":
        (tmp_path / "other").write_bytes(b"junk" * 99 if what == "junk" else b"")
        os.replace(tmp_path / "other", file)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            service.check()
    assert service.current is taken
    assert len(caplog.records) == 1  # said once
    write_vectors(file, np.random.default_rng(2).normal(size=(6, 4)))
    service.check()
    assert len(service.current.index) == 6


def test_replacing_the_index_under_load_loses_no_request(tmp_path) -> None:
    """Every answer is of one index or the other, and right for it."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(400, 16))
    file = tmp_path / "an.index"
    write_vectors(file, x, "a")
    wrong, counts, stop = [], {"a": 0, "b": 0}, threading.Event()
    lock = threading.Lock()

    def ask(client, seed):
        mine = np.random.default_rng(seed)
        while not stop.is_set():
            i = int(mine.integers(400))
            asked = {"vector": x[i].tolist(), "k": 3}
            answer = client.post("/api/search/vector", json=asked)
            if answer.status_code != 200:
                wrong.append(answer.text)
                continue
            path = answer.json()["hits"][0]["path"]
            # In the second index the rows stand in reverse.
            expected = {"a": f"a{i:07d}.jpg", "b": f"b{399 - i:07d}.jpg"}[path[0]]
            with lock:
                counts[path[0]] += 1
            if path != expected:
                wrong.append((path, expected))

    with serving(file) as client:
        threads = [threading.Thread(target=ask, args=(client, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: counts["a"] > 20)
            for turn in range(3):
                name, rows = ("b", x[::-1]) if turn % 2 == 0 else ("a", x)
                before = counts[name]
                write_vectors(file, rows, name)
                until(lambda before=before, name=name: counts[name] > before + 20)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert wrong == []
    assert counts["b"] > 20


def test_index_overwritten_in_place_does_not_crash_the_service(tmp_path) -> None:
    """In a process of its own: a memory map would die of a bus error."""
    draw = np.random.default_rng(4)
    write_vectors(tmp_path / "an.index", draw.normal(size=(20_000, 32)), "old")
    write_vectors(tmp_path / "new.index", draw.normal(size=(30, 32)), "new")
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", OVERWRITE, tmp_path],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    statuses, last = json.loads(done.stdout)
    assert set(statuses) == {200}
    assert last.startswith("new")


OVERWRITE = """
import json, os, shutil, sys, time
from fastapi.testclient import TestClient
from proxysynth.search import Index
from proxysynth.web import create_app

folder = sys.argv[1]
served, statuses = f"{folder}/an.index", []
app = create_app(Index.open(served))
asked = {"vector": [1.0] * 32, "k": 3}
with TestClient(app, "http://localhost") as client:
    def ask():
        answer = client.post("/api/search/vector", json=asked)
        statuses.append(answer.status_code)
        return answer.json()
    ask()
    os.truncate(served, 5000)  # what `cp` does first
    for _ in range(5):
        ask()
        time.sleep(0.1)
    shutil.copyfile(f"{folder}/new.index", served)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        hits = ask().get("hits") or [{"path": "none"}]
        if hits[0]["path"].startswith("new"):
            break
        time.sleep(0.1)
print(json.dumps([statuses, hits[0]["path"]]))
"""
