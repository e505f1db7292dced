"""The documents that a reader meets, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "PYPI.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    """What stands between ```LANGUAGE and ```, from top to bottom."""
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S)


def scripts(document: Path) -> dict[str, str]:
    """Its Python blocks that begin with the name of a file: a command of the document runs them."""
    found = [(re.match(r"# (\w+\.py)\n", block), block) for block in blocks(document, "python")]
    return {named[1]: block for named, block in found if named}
