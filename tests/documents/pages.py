"""The documents that a reader meets, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "PYPI.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    """What stands between ```LANGUAGE and ```, from top to bottom."""
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S)
