"""Hostile images: decoded, or refused by name; never a crash, a hang or a bill of memory.

Uploads of the same images are tested in `web/test_uploads.py`.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from attacks.test_mutations import MUTATIONS, time_limit
from proxysynth.data import UnreadableImage
from proxysynth.data.images import FORMATS, open_image
from proxysynth.search import Index
from proxysynth.search.build import update_index
from proxysynth.search.model import open_model
from web.test_uploads import corpus, saved

# Runs a command and prints the largest memory that it had, in megabytes.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""

KINDS = [kind for kind in FORMATS if kind != "MPO"]


def decode(data: bytes, what: str) -> bool:
    """Whether it is an image; anything but an image or `UnreadableImage` fails the test."""
    try:
        with time_limit(what):
            image = open_image(io.BytesIO(data))
    except UnreadableImage as error:
        assert "\n" not in error.reason, what  # noqa: PT017
        return False
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    assert image.mode == "RGB", what
    return True


def attack(kind: str, seeds: range) -> tuple[int, int]:
    """Mutations of an image; returns how many were decoded and how many were refused."""
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {kind}")
    whole, decoded = saved(kind), 0
    for seed in seeds:
        data, draw = bytearray(whole), random.Random(f"{kind} {seed}")
        how = MUTATIONS[seed % (len(MUTATIONS) - 1)]  # all but JSON
        for _ in range(draw.choice((1, 1, 4))):
            if data:
                how(data, draw)
        decoded += decode(bytes(data), f"{kind}, seed {seed}: {how.__name__}")
    return decoded, len(seeds) - decoded


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_images_are_decoded_or_rejected(kind) -> None:
    attack(kind, range(30))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_images_are_decoded_or_rejected(kind, record_property) -> None:
    record_property("counts", attack(kind, range(1000, 2000)))


def test_broken_images_are_rejected_by_path_and_bytes(tmp_path) -> None:
    for number, (name, data) in enumerate(corpus().items()):
        path = tmp_path / f"{number}.png"
        path.write_bytes(data)
        if not decode(data, name):
            with pytest.raises(UnreadableImage) as caught:
                open_image(path, side=32)
            assert path.name in str(caught.value)


def test_broken_images_are_skipped_in_index(shop, tmp_path) -> None:
    """Whatever can be decoded is in the index, the rest is listed with a reason."""
    photos, names = tmp_path / "photos" / "class", {}
    photos.mkdir(parents=True)
    for number, (name, data) in enumerate(corpus().items()):
        (photos / f"{number}.png").write_bytes(data)
        names[f"class/{number}.png"] = name
    photos.joinpath("folder.png").mkdir()
    Image.new("RGB", (40, 30), "red").save(photos / "good.jpg")
    with time_limit("indexing"):
        made = update_index(open_model(shop / "run", "cpu"), photos.parent, tmp_path / "a.index")
    refused = {one.path for one in made.unreadable}
    assert all(one.reason and "\n" not in one.reason for one in made.unreadable)
    indexed = set(Index.open(made.file).paths)
    assert "class/good.jpg" in indexed
    assert indexed | refused == {*names, "class/good.jpg"}
    assert not indexed & refused
    assert len(refused) > len(names) // 2
    assert not list(Path(tmp_path).glob(".unfinished*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux does")
def test_indexing_memory_is_bounded_for_largest_images(shop, tmp_path, record_property) -> None:
    """Eight bytes per pixel of one image and what Python and torch need, for several images."""
    photos, turned = tmp_path / "photos" / "class", Image.Exif()
    photos.mkdir(parents=True)
    turned[0x0112] = 6  # a quarter turn
    largest = Image.new("RGBA", (13_000, 13_000))
    for number in range(3):
        largest.save(photos / f"{number}.png", compress_level=1, exif=turned)
    Image.new("RGB", (40, 30), "red").save(photos / "good.jpg")
    command = [sys.executable, "-m", "proxysynth", "index", shop / "run", photos.parent]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, command), "-o", str(tmp_path / "a.index")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(Index.open(tmp_path / "a.index")) == 4
    peak = float(done.stdout.splitlines()[-1])
    record_property("megabytes", peak)
    assert peak < 8 * 169 + 600
