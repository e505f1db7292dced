"""The panels of the home page's picture are drawn by their script, the same each time."""

import importlib.util
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[3] / "docs" / "make_picture.py"


def test_panels_are_written_deterministically(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("make_picture", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {"idea_a.png", "idea_b.png", "idea_c.png"}
    for name in first:
        with Image.open(tmp_path / name) as image:
            assert image.width >= 600
    script.main(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
