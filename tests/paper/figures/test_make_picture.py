"""The picture of the README is drawn by its script, the same each time."""

import importlib.util
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[3] / "docs" / "make_picture.py"


def test_the_readme_picture_is_written_as_vector_and_png(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("make_picture", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {"idea.svg", "idea.png"}
    assert b"<svg" in first["idea.svg"]
    with Image.open(tmp_path / "idea.png") as image:
        assert image.width >= 1400  # 7 inches at 200 dots
    script.main(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
