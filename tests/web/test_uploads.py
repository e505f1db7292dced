"""Uploads that are broken, huge or lying: refused with a sentence, never a failure."""

from __future__ import annotations

import gzip
import io
import os
import resource
import struct
import tempfile
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from proxysynth.data.images import FORMATS
from proxysynth.web.guard import Limits, Refused
from proxysynth.web.images import check_pixels


def saved(kind: str, size=(40, 30), **how) -> bytes:
    draw = np.random.default_rng(1)
    image = Image.fromarray(draw.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def png(width: int, height: int, data: bytes, color: int = 2) -> bytes:
    """A PNG by hand, of any size its header likes to claim."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def corpus() -> dict[str, bytes]:
    """Broken pictures of every format that is decoded, and what is none."""
    Image.init()
    made = {
        "empty": b"",
        "text": b"this is a text, not a picture\n" * 40,
        "html": b"<!DOCTYPE html><script>alert(1)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "zip": b"PK\x03\x04" + bytes(200),
        "gzip bomb": gzip.compress(bytes(2**20)),
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "zeros": bytes(5000),
        "bomb": png(30_000, 30_000, bytes(9)),
        "large bomb": png(2**31 - 1, 2**31 - 1, b""),
        "wide": png(10_000, 9_999, bytes(9)),
        "no pixels": png(64, 64, b""),
        "zero wide": png(0, 10, b""),
        "bad colour": png(10, 10, bytes(400), color=77),
        "pgm that lies": b"P5 9000 5000 255\n" + bytes(100),
        "pgm of text": b"P2 x y z\n",
    }
    draw = np.random.default_rng(0)
    for kind in FORMATS:
        if kind not in Image.SAVE or kind == "MPO":
            continue
        whole = saved(kind)
        for part in (0.2, 0.5, 0.9):
            made[f"{kind} cut at {part}"] = whole[: int(len(whole) * part)]
        for seed in range(4):
            bytes_ = bytearray(whole)
            for place in draw.integers(0, len(bytes_), 1 + len(bytes_) // (40 * (seed + 1))):
                bytes_[place] = draw.integers(0, 256)
            made[f"{kind} scrambled {seed}"] = bytes(bytes_)
        made[f"{kind} head only"] = whole[:16] + bytes(100)
    return made


@pytest.fixture(scope="module")
def broken():
    return corpus()


def test_broken_images_do_not_crash_the_service(client, broken) -> None:
    assert len(broken) > 80
    refused = 0
    for name, data in broken.items():
        answer = client.post("/api/search", files={"file": (f"{name}.jpg", data, "image/jpeg")})
        # A scrambled picture may still be one; nothing may be a failure.
        assert answer.status_code in (200, 413, 415), (name, answer.text)
        if answer.status_code != 200:
            refused += 1
            assert answer.json()["error"].count("\n") == 0
    assert refused > len(broken) // 2
    assert client.get("/api/health").status_code == 200


def test_decompression_bombs_are_rejected_by_their_header(client, broken) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("bomb", "large bomb", "wide"):
        answer = client.post("/api/search", files={"file": broken[name]})
        assert answer.status_code in (413, 415), name
    answer = client.post("/api/search", files={"file": broken["wide"]})
    assert "at most 50,000,000 pixels are decoded, it has 10000 x 9999" in answer.json()["error"]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024  # kilobytes; decoded, the least of them would take 300,000


def test_memory_stays_bounded_over_many_large_uploads(client) -> None:
    data = saved("PNG", size=(2000, 1500))  # nine megabytes of noise
    for _ in range(6):
        client.post("/api/search", files={"file": data})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(12):
        assert client.post("/api/search", files={"file": data}).status_code == 200
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 60 * 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc to read memory")
def test_memory_of_large_images_is_released(client) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    data = io.BytesIO()
    Image.new("RGBA", (4000, 4000)).save(data, "PNG")
    client.post("/api/search", files={"file": saved("PNG")})
    before = resident()
    for _ in range(4):
        assert client.post("/api/search", files={"file": data.getvalue()}).status_code == 200
    limit = before + 64 * 2**20  # one decoded image takes 64 MB, and its copies more
    last = time.monotonic() + 20
    while resident() >= limit and time.monotonic() < last:
        time.sleep(0.05)
    assert resident() < limit


def test_large_upload_is_rejected(client) -> None:
    answer = client.post("/api/search", files={"file": bytes(21 * 2**20)})
    assert answer.status_code == 413
    assert answer.json()["error"] == "expected at most 20 MB: send less"


def test_large_upload_without_content_length_is_rejected(client) -> None:
    """Sent in pieces, without a length: it is counted while it comes, and refused all the same."""
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    pieces = (piece for piece in (head, *[bytes(2**20)] * 21, b"\r\n--b--\r\n"))
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/api/search", content=pieces, headers=kind)
    assert answer.status_code == 413
    assert answer.json()["error"] == "expected at most 20 MB: send less"


def test_text_file_with_image_name_is_rejected(client) -> None:
    file = ("holiday.jpg", b"dear diary", "image/jpeg")
    answer = client.post("/api/search", files={"file": file})
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("the file is not an image that can be read: ")


def test_uploads_leave_no_temporary_files(client, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = saved("PNG", size=(900, 800))  # above what is held in memory, so a file is spooled
    assert len(data) > 2**20
    assert client.post("/api/search", files={"file": data}).status_code == 200
    assert client.post("/api/search", files={"file": data[:-2000]}).status_code == 415
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_image_formats_are_accepted(client, kind) -> None:
    answer = client.post("/api/search", files={"file": ("x", saved(kind), "text/plain")})
    assert answer.status_code == 200


def test_request_without_a_file_is_rejected(client) -> None:
    for asked in ({}, {"data": {"k": 3}}, {"data": {"file": "text"}}, {"content": b"junk"}):
        answer = client.post("/api/search", **asked)
        assert answer.status_code in (400, 422)
        assert "error" in answer.json()
    wrong = {"content-type": "multipart/form-data; boundary=x"}
    answer = client.post("/api/search", content=b"--y\r\njunk", headers=wrong)
    assert answer.status_code in (400, 422)


def test_pixel_limit_counts_pixels() -> None:
    file = io.BytesIO(saved("PNG", size=(100, 50)))
    check_pixels(file, Limits(pixels=5000))
    with pytest.raises(Refused, match="100 x 50"):
        check_pixels(file, Limits(pixels=4999))
