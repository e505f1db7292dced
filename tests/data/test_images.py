import errno
import io
import os
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxysynth.data import ImageCache, UnreadableImage, images as module, open_image
from proxysynth.data.images import FORMATS, cache_folder
from proxysynth.files import write_atomically

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 9, 3), np.uint8)
GREY = RNG.integers(0, 256, (6, 9), np.uint8)


def read(image, tmp_path, suffix=".png", **options):
    path = tmp_path / f"picture{suffix}"
    image.save(path, **options)
    made = open_image(path)
    assert made.mode == "RGB"
    return np.asarray(made)


def grey3(values):
    return np.repeat(np.asarray(values)[..., None], 3, axis=2)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".tif", ".webp"])
def test_rgb_in_lossless_formats(tmp_path, suffix):
    options = {"lossless": True} if suffix == ".webp" else {}
    assert np.array_equal(read(Image.fromarray(COLOUR), tmp_path, suffix, **options), COLOUR)


@pytest.mark.parametrize("suffix", [".jpg", ".jp2", ".gif"])
def test_rgb_in_other_formats(tmp_path, suffix):
    plain = Image.new("RGB", (9, 6), (200, 40, 90))
    assert np.abs(read(plain, tmp_path, suffix).astype(int) - (200, 40, 90)).max() <= 6


def test_gray_and_one_bit(tmp_path):
    assert np.array_equal(read(Image.fromarray(GREY), tmp_path), grey3(GREY))
    assert np.array_equal(read(Image.fromarray(GREY), tmp_path, ".pgm"), grey3(GREY))
    bits = Image.fromarray(GREY > 127)
    assert bits.mode == "1"
    assert np.array_equal(read(bits, tmp_path), grey3(np.where(GREY > 127, 255, 0)))


def test_palette(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    assert read(image, tmp_path).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_palette_transparency_is_composited_on_white(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    one = read(image, tmp_path, transparency=1)
    assert one.tolist() == [[[255, 0, 0], [255, 255, 255]]]
    half = read(image, tmp_path, transparency=bytes([255, 128]))
    assert half.tolist() == [[[255, 0, 0], [127, 127, 255]]]
    gif = read(image, tmp_path, ".gif", transparency=0)
    assert gif.tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_alpha_is_composited_on_white(tmp_path):
    alpha = RNG.integers(0, 256, (6, 9, 1), np.uint8)
    image = Image.fromarray(np.concatenate([COLOUR, alpha], axis=2))
    cover = alpha / 255.0
    expected = COLOUR * cover + 255 * (1 - cover)
    assert np.abs(read(image, tmp_path) - expected).max() <= 1
    both = Image.fromarray(np.concatenate([GREY[..., None], alpha], axis=2))
    assert both.mode == "LA"
    assert np.abs(read(both, tmp_path) - (GREY[..., None] * cover + 255 * (1 - cover))).max() <= 1


def test_transparent_color_is_composited_on_white(tmp_path):
    image = Image.fromarray(np.array([[[9, 9, 9], [1, 2, 3]]], np.uint8))
    assert read(image, tmp_path, transparency=(9, 9, 9)).tolist() == [[[255] * 3, [1, 2, 3]]]


def test_cmyk(tmp_path):
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[..., 0] = 255  # all cyan
    made = read(Image.fromarray(ink, mode="CMYK"), tmp_path, ".jpg", quality=95)
    assert np.abs(made.astype(int) - (0, 255, 255)).max() <= 4
    assert read(Image.fromarray(ink, mode="CMYK"), tmp_path, ".tif")[0, 0].tolist() == [0, 255, 255]


def test_16_bit_pgm(tmp_path):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    path = tmp_path / "picture.pgm"
    path.write_bytes(b"P5 9 6 65535\n" + deep.astype(">u2").tobytes())
    assert np.array_equal(np.asarray(open_image(path)), grey3(deep >> 8))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bit_image_keeps_upper_eight_bits(tmp_path, suffix):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    assert np.array_equal(read(Image.fromarray(deep), tmp_path, suffix), grey3(deep >> 8))


def test_dark_16_bit_image_stays_dark(tmp_path):
    deep = np.full((4, 4), 200, np.uint16)
    assert read(Image.fromarray(deep), tmp_path).max() == 0


def test_big_endian_16_bit_image(tmp_path):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    image = Image.frombytes("I;16B", (9, 6), deep.astype(">u2").tobytes())
    assert np.array_equal(read(image, tmp_path, ".tif"), grey3(deep >> 8))


def test_32_bit_and_float_images(tmp_path):
    wide = np.array([[0, 1_000_000, 2_000_000]], np.int32)
    assert read(Image.fromarray(wide), tmp_path, ".tif")[0, :, 0].tolist() == [0, 128, 255]
    unit = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert read(Image.fromarray(unit), tmp_path, ".tif")[0, :, 0].tolist() == [0, 128, 255]
    bytes_ = np.array([[0.0, 17.0, 255.0]], np.float32)
    assert read(Image.fromarray(bytes_), tmp_path, ".tif")[0, :, 0].tolist() == [0, 17, 255]
    odd = np.array([[-1.0, np.nan, 3.0]], np.float32)
    assert read(Image.fromarray(odd), tmp_path, ".tif")[0, :, 0].tolist() == [0, 64, 255]


UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize(
    ("orientation", "suffix"),
    [*((orientation, ".jpg") for orientation in UPRIGHT), (6, ".png"), (5, ".tif"), (8, ".webp")],
)
def test_exif_orientation(tmp_path, orientation, suffix):
    corners = np.kron(RNG.integers(0, 2, (2, 3, 1), np.uint8) * 255, np.ones((16, 16, 3), np.uint8))
    corners[:16, :16] = (255, 0, 0)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {".webp": {"lossless": True}, ".jpg": {"quality": 95, "subsampling": 0}}
    made = read(Image.fromarray(corners), tmp_path, suffix, exif=exif, **options.get(suffix, {}))
    assert made.shape == UPRIGHT[orientation](corners).shape
    assert np.abs(made.astype(int) - UPRIGHT[orientation](corners)).max() <= 20


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_exif_is_ignored(tmp_path):
    made = read(Image.fromarray(COLOUR), tmp_path, exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert np.array_equal(made, COLOUR)


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png", ".tif"])
def test_animation_uses_first_frame(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    made = read(frames[0], tmp_path, suffix, save_all=True, append_images=frames[1:])
    assert np.abs(made.astype(int) - (255, 0, 0)).max() <= 4


def test_large_jpeg_is_decoded_at_reduced_size(tmp_path):
    image = Image.fromarray(COLOUR).resize((800, 400), Image.Resampling.BICUBIC)
    image.save(tmp_path / "large.jpg")
    assert open_image(tmp_path / "large.jpg").size == (800, 400)
    assert open_image(tmp_path / "large.jpg", at_least=100).size == (200, 100)
    assert open_image(tmp_path / "large.jpg", at_least=201).size == (800, 400)


def test_open_image_accepts_file_objects():
    stream = io.BytesIO()
    Image.fromarray(COLOUR).save(stream, "PNG")
    assert np.array_equal(np.asarray(open_image(io.BytesIO(stream.getvalue()))), COLOUR)
    with pytest.raises(UnreadableImage, match="given as bytes: the file is empty"):
        open_image(io.BytesIO(b""))


def png_header(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("limit", [Image.MAX_IMAGE_PIXELS, None])  # None: Pillow has no limit
def test_decompression_bomb_is_rejected(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(60_000, 60_000))
    with pytest.raises(UnreadableImage, match="178,956,970 pixels"):
        open_image(path)


def test_pixel_limit_is_exact(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    Image.fromarray(COLOUR).save(path)
    monkeypatch.setattr(module, "MAX_PIXELS", 54)
    open_image(path)
    monkeypatch.setattr(module, "MAX_PIXELS", 53)
    with pytest.raises(UnreadableImage, match="it has 9 x 6"):
        open_image(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html>404</html>", "an HTML page"),
        (b"\n <HTML><body>Forbidden", "an HTML page"),
        (b"<?xml version='1.0'?><svg/>", "XML or SVG"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"just text", "damaged or not one of JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "damaged or not one of"),
    ],
)
def test_non_image_is_rejected(tmp_path, data, words):
    path = tmp_path / "picture.jpg"
    path.write_bytes(data)
    with pytest.raises(UnreadableImage, match=words) as caught:
        open_image(path)
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_truncated_image_is_rejected(tmp_path, suffix):
    path = tmp_path / f"picture{suffix}"
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(UnreadableImage, match="truncated"):
        open_image(path)


def test_missing_file_and_folder_are_rejected(tmp_path):
    with pytest.raises(UnreadableImage, match="no such file"):
        open_image(tmp_path / "missing.jpg")
    with pytest.raises(UnreadableImage, match="it is a folder"):
        open_image(tmp_path)


def test_wrong_file_extension_is_ignored(tmp_path):
    Image.fromarray(COLOUR).save(tmp_path / "picture.jpg", format="PNG")
    assert np.array_equal(np.asarray(open_image(tmp_path / "picture.jpg")), COLOUR)


def test_formats_that_run_external_programs_are_excluded():
    assert {"EPS", "WMF", "FPX", "MIC", "PDF"}.isdisjoint(FORMATS)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow remarks on damaged tags
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_damaged_bytes_raise_only_unreadable_image(name):
    """Forty files of each format with random bytes changed or cut: an image, or its own error."""
    stream = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (40, 40, 3), np.uint8)).save(stream, name)
    whole = stream.getvalue()
    unreadable = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        data = bytearray(whole)
        for place in draw.integers(0, len(data), 12):
            data[place] = draw.integers(0, 256)
        for place in draw.integers(0, min(64, len(data)), 2):
            data[place] = draw.integers(0, 256)
        try:
            assert open_image(io.BytesIO(bytes(data[: draw.integers(1, len(data))]))).mode == "RGB"
        except UnreadableImage:
            unreadable += 1
    assert unreadable > 0


def test_constant_float_image_out_of_range(tmp_path):
    Image.fromarray(np.full((2, 3), 300.0, np.float32)).save(tmp_path / "flat.tiff")
    assert np.asarray(open_image(tmp_path / "flat.tiff")).tolist() == [[[0] * 3] * 3] * 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_named_pipe_is_rejected_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImage, match="not a file"):
        open_image(tmp_path / "pipe.jpg")


def peak_memory(path, threads=1):
    """Megabytes that decoding adds to a process, by several threads at once."""
    program = f"""
import resource, sys, threading
from proxysynth.data.images import open_image
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
args = (sys.argv[1], None, 256)
work = [threading.Thread(target=open_image, args=args) for _ in range({threads})]
[thread.start() for thread in work]
[thread.join() for thread in work]
print(peak() - before)
"""
    command = [sys.executable, "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")  # Pillow's warning of large images included
    return float(ended.stdout)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("mode", "threads"),
    [("LA", 3), pytest.param("RGBA", 1, marks=SLOW), pytest.param("I;16", 1, marks=SLOW)],
)
def test_memory_of_a_large_image_is_bounded(tmp_path, mode, threads):
    """Eight bytes per pixel, as decoded and as RGB, however many threads decode large images."""
    path = tmp_path / "large.png"
    Image.new(mode, (7_000, 5_000)).save(path, compress_level=1)  # 35 megapixels in a small file
    assert path.stat().st_size < 2e6
    assert peak_memory(path, threads) < 1.2 * 8 * 35 + 40


@pytest.mark.slow
def test_memory_of_the_largest_image_is_bounded(tmp_path):
    path = tmp_path / "largest.png"
    Image.new("RGBA", (13_000, 13_000)).save(path, compress_level=1)
    assert peak_memory(path) < 1.2 * 8 * 169


def jpeg_with_orientation(path, value):
    coarse = Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 12, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = value
    coarse.resize((1600, 1200), Image.Resampling.BICUBIC).save(path, quality=90, exif=exif)
    return path


@pytest.mark.parametrize("orientation", [1, 6])
def test_file_and_pil_image_give_the_same_pixels(tmp_path, orientation):
    path = jpeg_with_orientation(tmp_path / "photo.jpg", orientation)
    from_file = open_image(path, side=64)
    with Image.open(path) as image:
        lazy = open_image(image, side=64)
    with Image.open(path) as image:
        image.load()
        loaded = open_image(image, side=64)
    assert from_file.size == ((85, 64) if orientation == 1 else (64, 85))
    assert np.array_equal(from_file, lazy)
    assert np.array_equal(from_file, loaded)
    assert np.array_equal(from_file, open_image(from_file, side=64)), "orientation is applied once"


def test_orientation_of_malformed_exif_is_applied(tmp_path):
    """Its orientation is 6, and the width, which should be positive, is -5."""
    entries = struct.pack("<HHIi", 0x100, 9, 1, -5) + struct.pack("<HHIHH", 0x112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)
    path = tmp_path / "photo.jpg"
    Image.fromarray(COLOUR).save(path, exif=exif)
    made = open_image(path)
    assert made.size == (6, 9)
    with Image.open(path) as image:
        assert np.array_equal(open_image(image), made)
    assert np.array_equal(open_image(made), made), "orientation is applied once"


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "L", "1", "CMYK", "I;16", "I", "F"])
def test_banded_conversion_matches_whole_image(monkeypatch, mode):
    draw = np.random.default_rng(0)
    if mode in ("I;16", "I", "F"):
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        image = Image.fromarray(draw.integers(0, 60_000, (50, 40)).astype(kind))
    else:
        image = Image.fromarray(draw.integers(0, 256, (50, 40, 4), np.uint8), "RGBA")
        image = image if mode == "RGBA" else image.convert("RGB").convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    whole = module.to_rgb(image)
    monkeypatch.setattr(module, "BAND", 280)
    assert np.array_equal(whole, module.to_rgb(image))


def test_control_characters_in_path_are_escaped(tmp_path):
    path = tmp_path / "\x1b]0;title\x07.jpg"
    with pytest.raises(UnreadableImage) as caught:
        open_image(path)
    assert "\x1b" not in str(caught.value)
    assert r"\x1b]0;title\x07.jpg" in str(caught.value)


@pytest.fixture
def photo(tmp_path):
    """A smooth image of 900 x 600: a large one for a cache of 64."""
    coarse = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8))
    path = tmp_path / "photo.jpg"
    coarse.resize((900, 600), Image.Resampling.BICUBIC).save(path, quality=95)
    return path


@pytest.fixture
def decoded(monkeypatch):
    """Which files were really decoded."""
    seen = []

    def counting(path, *sizes):
        seen.append(str(path))
        return open_image(path, *sizes)

    monkeypatch.setattr(module, "open_image", counting)
    return seen


def test_short_side_is_shrunk_and_never_enlarged(photo, tmp_path):
    assert open_image(photo, side=64).size == (96, 64)
    Image.new("RGB", (30, 50)).save(tmp_path / "small.png")
    assert open_image(tmp_path / "small.png", side=64).size == (30, 50)


def test_reduced_jpeg_decoding_is_close_to_exact(photo):
    with Image.open(photo) as image:
        exact = np.asarray(image.resize((96, 64), Image.Resampling.BILINEAR), dtype=np.float64)
    drafted = np.asarray(open_image(photo, 128, 64))
    assert 0 < np.abs(drafted - exact).mean() < 1.5


def test_shrinking_matches_evaluation_resize(photo):
    with Image.open(photo) as image:
        exact = np.asarray(image.resize((600, 400), Image.Resampling.BILINEAR))
    assert np.array_equal(open_image(photo, side=400), exact)


@pytest.mark.parametrize("memory", [0, 1 << 20])
@pytest.mark.parametrize("disk", [0, 1 << 20])
def test_cache_state_does_not_change_the_image(photo, tmp_path, memory, disk, decoded):
    expected = open_image(photo, 128, 64)
    for _ in range(2):  # two runs over one folder
        cache = ImageCache(64, memory, disk, tmp_path / "cache")
        for _ in range(3):
            assert np.array_equal(cache.image(photo), expected)
    assert len(decoded) == {(0, 0): 6, (0, 1): 1, (1, 0): 2, (1, 1): 1}[memory > 0, disk > 0]


def test_changed_file_is_decoded_again(tmp_path, decoded):
    photo = tmp_path / "photo.bmp"
    for times, colour in enumerate(((255, 0, 0), (0, 0, 255)), start=1):
        Image.new("RGB", (90, 60), colour).save(photo)  # a file of the same size
        os.utime(photo, ns=(times, times))
        made = ImageCache(64, folder=tmp_path / "cache").image(photo)
        assert len(decoded) == times
        assert made[0, 0].tolist() == list(colour)


def test_cache_separates_image_sizes(photo, tmp_path):
    for side in (64, 32):
        made = ImageCache(side, folder=tmp_path / "cache").image(photo)
        assert min(made.shape[:2]) == side


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign"])
def test_damaged_cache_file_is_rebuilt(photo, tmp_path, damage, decoded):
    expected = ImageCache(64, folder=tmp_path / "cache").image(photo)
    (file,) = (tmp_path / "cache").rglob("*.raw")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[100] ^= 1
    changed = {"cut": whole[:-1], "empty": b"", "flipped": bytes(flipped), "foreign": b"x" * 99}
    file.write_bytes(changed[damage])
    assert np.array_equal(ImageCache(64, folder=tmp_path / "cache").image(photo), expected)
    assert len(decoded) == 2
    assert file.read_bytes() == whole


def in_memory(cache, paths):
    """Those that the cache holds in memory: it reads the others again each time."""
    return [path for path in paths if cache.image(path) is cache.image(path)]


def test_cache_budgets_are_respected(make_folder, tmp_path, decoded):
    paths = sorted(make_folder({"x": 6}, size=(20, 10)).rglob("*.png"))  # 600 bytes each
    cache = ImageCache(64, memory=1300, disk=2000, folder=tmp_path / "cache")
    for _ in range(2):
        for path in paths:
            cache.image(path)
    assert len(list((tmp_path / "cache").rglob("*.raw"))) == 3
    assert len(decoded) == 6 + 3  # the second round finds two in memory, one on disk
    assert len(in_memory(cache, paths)) == 2
    assert ImageCache(64, disk=2000, folder=tmp_path / "cache").image(paths[-1]).shape
    assert len(list((tmp_path / "cache").rglob("*.raw"))) == 3, "what is there counts"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_cache_write_failure_is_ignored(photo, tmp_path, monkeypatch, fault):
    expected = open_image(photo, 128, 64)

    def fail(*_, **__):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "replace", fail)
    cache = ImageCache(64, memory=0, folder=tmp_path / "cache")
    for _ in range(2):
        assert np.array_equal(cache.image(photo), expected)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_cache_folder_creation_failure_is_ignored(photo, tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = ImageCache(64, memory=0, folder=tmp_path / "file" / "cache")
    assert np.array_equal(cache.image(photo), open_image(photo, 128, 64))


def test_cached_images_are_read_only(photo, tmp_path):
    cache = ImageCache(64, folder=tmp_path / "cache")
    with pytest.raises(ValueError, match="read-only"):
        cache.image(photo)[0, 0, 0] = 1


def test_threads_share_one_cache(make_folder, tmp_path):
    paths = sorted(make_folder({"x": 20}).rglob("*.png"))
    expected = {path: open_image(path, side=16) for path in paths}
    cache = ImageCache(16, memory=9000, folder=tmp_path / "cache")
    wrong = []

    def read(seed):
        for i in np.random.default_rng(seed).integers(0, 20, 60):
            if not np.array_equal(cache.image(paths[i]), expected[paths[i]]):
                wrong.append(paths[i])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    held = in_memory(cache, paths)
    assert held
    assert sum(expected[path].size[0] * expected[path].size[1] * 3 for path in held) <= 9000


@pytest.mark.parametrize(
    ("name", "fault"),
    [("missing.jpg", "no such file"), ("bad.jpg", "HTML page"), ("a\0b.png", "null")],
)
def test_cache_reports_unreadable_images(tmp_path, name, fault):
    (tmp_path / "bad.jpg").write_bytes(b"<html>")
    with pytest.raises(UnreadableImage, match=fault):
        ImageCache(folder=tmp_path).image(os.path.join(tmp_path, name))


def test_cache_folder_from_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_cache_folder_defaults_to_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("PROXYSYNTH_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "proxysynth"


def test_cache_folder_without_home_directory(monkeypatch):
    def no_home():
        raise RuntimeError("no home")

    monkeypatch.delenv("PROXYSYNTH_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder().name == "proxysynth"


def test_atomic_write_leaves_no_temporary_files(tmp_path):
    write_atomically(tmp_path / "new" / "file", memoryview(b"abcd"))
    assert (tmp_path / "new" / "file").read_bytes() == b"abcd"
    assert os.listdir(tmp_path / "new") == ["file"]


def test_atomic_write_without_folder_fails(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError):
        write_atomically(tmp_path / "file" / "inside", b"x")


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS])
def test_failed_atomic_write_keeps_old_file(tmp_path, monkeypatch, fault):
    (tmp_path / "file").write_bytes(b"old")

    def fail(*_):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError):
        write_atomically(tmp_path / "file", b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
