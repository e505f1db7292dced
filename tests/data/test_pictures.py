import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from proxysynth.data import UnreadablePicture, open_picture, pictures as module
from proxysynth.data.pictures import FORMATS

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 9, 3), np.uint8)
GREY = RNG.integers(0, 256, (6, 9), np.uint8)


def read(image, tmp_path, suffix=".png", **options):
    path = tmp_path / f"picture{suffix}"
    image.save(path, **options)
    made = open_picture(path)
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


def test_grey_and_one_bit(tmp_path):
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


def test_palette_with_transparency_lies_on_white(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    one = read(image, tmp_path, transparency=1)
    assert one.tolist() == [[[255, 0, 0], [255, 255, 255]]]
    half = read(image, tmp_path, transparency=bytes([255, 128]))
    assert half.tolist() == [[[255, 0, 0], [127, 127, 255]]]
    gif = read(image, tmp_path, ".gif", transparency=0)
    assert gif.tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_alpha_lies_on_white(tmp_path):
    alpha = RNG.integers(0, 256, (6, 9, 1), np.uint8)
    image = Image.fromarray(np.concatenate([COLOUR, alpha], axis=2))
    cover = alpha / 255.0
    expected = COLOUR * cover + 255 * (1 - cover)
    assert np.abs(read(image, tmp_path) - expected).max() <= 1
    both = Image.fromarray(np.concatenate([GREY[..., None], alpha], axis=2))
    assert both.mode == "LA"
    assert np.abs(read(both, tmp_path) - (GREY[..., None] * cover + 255 * (1 - cover))).max() <= 1


def test_a_colour_named_transparent_lies_on_white(tmp_path):
    image = Image.fromarray(np.array([[[9, 9, 9], [1, 2, 3]]], np.uint8))
    assert read(image, tmp_path, transparency=(9, 9, 9)).tolist() == [[[255] * 3, [1, 2, 3]]]


def test_cmyk(tmp_path):
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[..., 0] = 255  # all cyan
    made = read(Image.fromarray(ink, mode="CMYK"), tmp_path, ".jpg", quality=95)
    assert np.abs(made.astype(int) - (0, 255, 255)).max() <= 4
    assert read(Image.fromarray(ink, mode="CMYK"), tmp_path, ".tif")[0, 0].tolist() == [0, 255, 255]


def test_sixteen_bits_of_a_portable_greymap(tmp_path):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    path = tmp_path / "picture.pgm"
    path.write_bytes(b"P5 9 6 65535\n" + deep.astype(">u2").tobytes())
    assert np.array_equal(np.asarray(open_picture(path)), grey3(deep >> 8))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_keep_their_upper_eight(tmp_path, suffix):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    assert np.array_equal(read(Image.fromarray(deep), tmp_path, suffix), grey3(deep >> 8))


def test_a_dark_sixteen_bit_picture_stays_dark(tmp_path):
    deep = np.full((4, 4), 200, np.uint16)
    assert read(Image.fromarray(deep), tmp_path).max() == 0


def test_big_endian_sixteen_bits(tmp_path):
    deep = np.linspace(0, 65535, 54).reshape(6, 9).astype(np.uint16)
    image = Image.frombytes("I;16B", (9, 6), deep.astype(">u2").tobytes())
    assert np.array_equal(read(image, tmp_path, ".tif"), grey3(deep >> 8))


def test_thirty_two_bits_and_floats(tmp_path):
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


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp", ".jpg"])
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
def test_a_damaged_exif_block_costs_nothing(tmp_path):
    made = read(Image.fromarray(COLOUR), tmp_path, exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert np.array_equal(made, COLOUR)


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png", ".tif"])
def test_animations_by_their_first_frame(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    made = read(frames[0], tmp_path, suffix, save_all=True, append_images=frames[1:])
    assert np.abs(made.astype(int) - (255, 0, 0)).max() <= 4


def test_a_large_jpeg_may_be_decoded_smaller(tmp_path):
    image = Image.fromarray(COLOUR).resize((800, 400), Image.Resampling.BICUBIC)
    image.save(tmp_path / "large.jpg")
    assert open_picture(tmp_path / "large.jpg").size == (800, 400)
    assert open_picture(tmp_path / "large.jpg", at_least=100).size == (200, 100)
    assert open_picture(tmp_path / "large.jpg", at_least=201).size == (800, 400)


def test_an_opened_file_is_read_too():
    stream = io.BytesIO()
    Image.fromarray(COLOUR).save(stream, "PNG")
    assert np.array_equal(np.asarray(open_picture(io.BytesIO(stream.getvalue()))), COLOUR)
    with pytest.raises(UnreadablePicture, match="given as bytes: the file is empty"):
        open_picture(io.BytesIO(b""))


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


def test_a_decompression_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(60_000, 60_000))
    with pytest.raises(UnreadablePicture, match="at most 178,956,970 pixels"):
        open_picture(path)


def test_the_limit_holds_even_where_pillow_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(60_000, 60_000))
    with pytest.raises(UnreadablePicture, match="it has 60000 x 60000"):
        open_picture(path)


def test_the_limit_is_exact(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    Image.fromarray(COLOUR).save(path)
    monkeypatch.setattr(module, "MAX_PIXELS", 54)
    open_picture(path)
    monkeypatch.setattr(module, "MAX_PIXELS", 53)
    with pytest.raises(UnreadablePicture, match="it has 9 x 6"):
        open_picture(path)


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
def test_what_is_not_a_picture_is_named(tmp_path, data, words):
    path = tmp_path / "picture.jpg"
    path.write_bytes(data)
    with pytest.raises(UnreadablePicture, match=words) as caught:
        open_picture(path)
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_truncated_picture_is_named(tmp_path, suffix):
    path = tmp_path / f"picture{suffix}"
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(UnreadablePicture, match="truncated"):
        open_picture(path)


def test_faults_of_the_file_system(tmp_path):
    with pytest.raises(UnreadablePicture, match="no such file"):
        open_picture(tmp_path / "missing.jpg")
    with pytest.raises(UnreadablePicture, match="it is a folder"):
        open_picture(tmp_path)


def test_a_name_that_lies_about_the_format_does_not_matter(tmp_path):
    Image.fromarray(COLOUR).save(tmp_path / "picture.jpg", format="PNG")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "picture.jpg")), COLOUR)


def test_no_format_that_starts_another_program():
    assert {"EPS", "WMF", "FPX", "MIC", "PDF"}.isdisjoint(FORMATS)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow remarks on damaged tags
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_damaged_bytes_never_end_in_another_error(name):
    """Forty files of each format with random bytes changed or cut: a picture, or its own error."""
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
            assert (
                open_picture(io.BytesIO(bytes(data[: draw.integers(1, len(data))]))).mode == "RGB"
            )
        except UnreadablePicture:
            unreadable += 1
    assert unreadable > 0


def test_floats_of_one_value_out_of_range(tmp_path):
    Image.fromarray(np.full((2, 3), 300.0, np.float32)).save(tmp_path / "flat.tiff")
    assert np.asarray(open_picture(tmp_path / "flat.tiff")).tolist() == [[[0] * 3] * 3] * 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadablePicture, match="not a file"):
        open_picture(tmp_path / "pipe.jpg")


def test_pillow_does_not_warn_of_a_large_picture_that_is_allowed(tmp_path):
    path = tmp_path / "wide.png"
    Image.new("1", (10_000, 9_100)).save(path)  # 91 megapixels in a few kilobytes
    program = "import sys; from proxysynth.data import open_picture; open_picture(sys.argv[1])"
    command = [sys.executable, "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
