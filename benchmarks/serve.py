"""The search service under load: a separate process, with concurrent clients on this machine.

The requests are vectors, photographs, and vectors while the index is replaced repeatedly. Every
response is checked: a vector is a row of the index, so it must be its own nearest neighbor.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.loader import photograph
from benchmarks.serve_load import Load, Request, drive
from proxysynth.search.index_file import write_index
from proxysynth.search.model import ModelIdentity, open_model
from proxysynth.tensor_files import write_tensors
from proxysynth.training import Run
from proxysynth.training.prepare import make_network, resized_side
from proxysynth.training.run_folder import MODEL, Recorded, write_run

LEAST_PER_SECOND = 300
WORST_OVER_MEDIAN = 3


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Args:
        items, dimensions: of the index.
        backbone: of the model that embeds.
        side: of a photograph, in pixels.
        seconds: of each measurement, after a warm-up.
        replacements: of the index under load.
    """

    items: int = 50_000
    dimensions: int = 512
    backbone: str = "efficientnet_lite0"
    side: int = 500
    clients: int = 8
    seconds: float = 15.0
    replacements: int = 5


QUICK = Size(2_000, 32, "conv4", 64, clients=4, seconds=0.6, replacements=2)


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row per kind of request: requests per second, median and 99th percentile of latency."""
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = untrained(folder / "run", size)
        x = rows(size)
        write(folder / "a.index", folder, model, x, "a")
        write(folder / "b.index", folder, model, x[::-1], "b")
        served = folder / "served.index"
        os.link(folder / "a.index", served)
        with serving(served) as port:
            one = drive(port, vectors(x), 1, size.seconds)
            many = drive(port, vectors(x), size.clients, size.seconds)
            photographs = drive(port, pictures(size), size.clients, size.seconds)
            replaced, generations = under_replacement(port, folder, x, size)
    found = [
        _row("vector in, ids out", size, 1, one),
        _row("vector in, ids out", size, size.clients, many) | _reached(many),
        _row(f"{size.side}-pixel photograph in, ids out", size, size.clients, photographs),
        _row("vector in, index replaced under load", size, size.clients, replaced)
        | {
            "replacements": generations - 1,
            "reached": replaced.lost == 0 and generations == size.replacements + 1,
        },
    ]
    return found


def rows(size: Size) -> NDArray[np.float32]:
    """Unit vectors in clusters of ten, like embeddings of classes."""
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(size.items // 10 + 1, size.dimensions))
    x = centers[np.arange(size.items) // 10] + draw.normal(size=(size.items, size.dimensions))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def untrained(folder: Path, size: Size) -> ModelIdentity:
    """A run's folder with random weights, which take as long as trained ones."""
    run = Run(data="none", backbone=size.backbone, dim=size.dimensions, pretrained=False)
    net = make_network(run, 32 if size.backbone == "conv4" else None)
    folder.mkdir()
    side = resized_side(run, net)
    write_run(folder, Recorded(run, run.identity, {}, ("a", "b"), net.image_size, side))
    weights = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    proxies = torch.zeros(2, size.dimensions)
    write_tensors(folder / MODEL, {**weights, "proxies": proxies}, {"epoch": 0})
    return open_model(folder, "cpu").identity


def write(file: Path, root: Path, model: ModelIdentity, x: NDArray[Any], name: str) -> None:
    """An index of these rows; item i is called NAMEi."""
    paths = [f"{name}{i:07d}.jpg" for i in range(len(x))]
    labels = [f"class{i // 10:06d}" for i in range(len(x))]
    stamps = np.zeros((len(x), 2), dtype=np.int64)
    write_index(file, model, root, paths, labels, stamps, x)


def vectors(x: NDArray[np.float32], most: int = 256) -> list[Request]:
    """Queries by a row of the index, whose first hit must be that row.

    The second index has the same rows in reverse order, under other names.
    """
    chosen = np.linspace(0, len(x) - 1, min(most, len(x))).astype(int)
    headers = {"Content-Type": "application/json"}
    return [
        Request(
            "/api/search/vector",
            json.dumps({"vector": x[i].tolist(), "k": 10}).encode(),
            headers,
            _first_is({f"a{i:07d}.jpg", f"b{len(x) - 1 - i:07d}.jpg"}),
        )
        for i in chosen
    ]


def pictures(size: Size, most: int = 16) -> list[Request]:
    """Uploads of JPEG files that resemble photographs."""
    made = []
    for i in range(most):
        out = io.BytesIO()
        image = photograph(i, size.side, size.side * 3 // 4, channels=3)
        image.save(out, "JPEG", quality=90)
        head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="p.jpg"\r\n\r\n'
        body = head + out.getvalue() + b"\r\n--x--\r\n"
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        made.append(Request("/api/search", body, headers, _ten_hits))
    return made


@contextmanager
def serving(file: Path) -> Iterator[int]:
    """Run the service in a separate process and yield its port."""
    command = [sys.executable, "-m", "proxysynth", "serve", str(file), "--port", "0"]
    server = subprocess.Popen([*command, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        while "warning:" in line:  # the pictures do not exist
            line = server.stderr.readline()
        if " at http://" not in line:
            raise RuntimeError(f"the service did not start: {line.strip()}")
        # Read later messages, so that they do not fill the pipe.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        address = line.split(" at ")[1].split()[0]
        # The map is computed at startup; wait for it before measuring.
        with urllib.request.urlopen(f"{address}/api/map", timeout=120):
            pass
        yield int(address.rsplit(":", 1)[1])
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def under_replacement(
    port: int, folder: Path, x: NDArray[np.float32], size: Size
) -> tuple[Load, int]:
    """Query vectors while the index is replaced several times.

    Returns the load, and how many generations of the index responded.
    """
    seconds = max(size.seconds, 1.5 * (size.replacements + 1))
    stop = threading.Event()

    def replace() -> None:
        for turn in range(size.replacements):
            if stop.wait(seconds / (size.replacements + 1)):
                return
            os.link(folder / ("ba"[turn % 2] + ".index"), folder / "next")
            os.utime(folder / "next")  # as if just written
            os.replace(folder / "next", folder / "served.index")

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        load = drive(port, vectors(x), size.clients, seconds)
    finally:
        stop.set()
        thread.join()
    return load, load.changes + 1


def _first_is(names: set[str]) -> Callable[[dict[str, Any]], bool]:
    return lambda response: response["hits"][0]["path"] in names and len(response["hits"]) == 10


def _ten_hits(response: dict[str, Any]) -> bool:
    return len(response["hits"]) == 10


def _row(what: str, size: Size, clients: int, load: Load) -> dict[str, Any]:
    return {
        "request": what,
        "items": size.items,
        "dimensions": size.dimensions,
        "clients": clients,
        "requests_per_second": load.answered / load.seconds,
        "median_ms": load.percentile(50),
        "p99_ms": load.percentile(99),
        "p99_over_median": load.percentile(99) / load.percentile(50),
        "lost": load.lost,
    }


def _reached(load: Load) -> dict[str, Any]:
    fast = load.answered / load.seconds >= LEAST_PER_SECOND
    even = load.percentile(99) <= WORST_OVER_MEDIAN * load.percentile(50)
    return {"reached": fast and even and load.lost == 0}
