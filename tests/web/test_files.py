"""Only pictures of the index leave the machine, and nothing that they carry besides."""

from __future__ import annotations

import io
import os
import re
from importlib.resources import files

import pytest
from PIL import Image

pytest.importorskip("fastapi")


from proxysynth.web.guard import Limits, Refused
from proxysynth.web.images import encoded_image, open_listed

SECRET = b"the secret outside of the index"


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "pictures"
    made.mkdir()
    Image.new("RGB", (900, 600), "teal").save(made / "a.jpg")
    (tmp_path / "secret.jpg").write_bytes(SECRET)
    Image.new("RGB", (9, 9)).save(tmp_path / "private.png")
    return made


@pytest.mark.parametrize(
    "path",
    ["../secret.jpg", "../private.png", "/etc/passwd", "a.jpg/../../private.png", "", ".", "b.jpg",
     "nul\0byte", "\udcff.jpg", "x" * 5000],
)  # fmt: skip
def test_path_outside_the_root_or_missing_is_rejected(root, path) -> None:
    with pytest.raises(Refused) as refused:
        open_listed(root, path)
    assert refused.value.status_code == 404


def test_symlink_out_of_the_folder_is_rejected(root) -> None:
    (root / "out.png").symlink_to(root.parent / "private.png")
    (root / "inside.jpg").symlink_to(root / "a.jpg")
    (root / "up").symlink_to(root.parent)
    for path in ("out.png", "up/private.png"):
        with pytest.raises(Refused):
            open_listed(root, path)
    with open_listed(root, "inside.jpg") as file:
        assert file.read(2) == b"\xff\xd8"


def test_sibling_folder_with_same_prefix_is_rejected(root) -> None:
    beside = root.parent / "pictures2"
    beside.mkdir()
    Image.new("RGB", (9, 9)).save(beside / "x.png")
    with pytest.raises(Refused):
        open_listed(root, "../pictures2/x.png")


def test_symlinked_root_is_followed(root) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    with open_listed(link, "a.jpg") as file:
        assert file.read() == (root / "a.jpg").read_bytes()


def test_named_pipe_is_rejected_without_blocking(root) -> None:
    os.mkfifo(root / "pipe.jpg")
    with pytest.raises(Refused):
        open_listed(root, "pipe.jpg")


def test_image_metadata_is_removed(root) -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.new("RGB", (64, 48), "red").save(
        root / "with_comments.jpg", exif=exif, comment=b"a comment"
    )
    data = encoded_image(root, "with_comments.jpg", 320, Limits())
    assert b"taken at home" not in data
    assert b"a comment" not in data
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (64, 48)


def test_html_file_with_image_name_is_rejected(root) -> None:
    (root / "page.jpg").write_bytes(b"<html><script>alert(1)</script>")
    with pytest.raises(Refused, match="HTML"):
        encoded_image(root, "page.jpg", 320, Limits())


def test_style_sheet_ids_exist_in_the_page() -> None:
    page = files("proxysynth.web") / "page"
    styled = re.sub(r"#[0-9a-f]{3,8}\b(?=[;\s,)])", "", (page / "style.css").read_text())  # colors
    ids = re.findall(r'id="([^"]+)"', (page / "index.html").read_text())
    assert set(re.findall(r"#([a-z][\w-]*)", styled)) <= set(ids)
