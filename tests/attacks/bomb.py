"""A pickle that runs code."""

from __future__ import annotations

import os
from pathlib import Path


class Bomb:
    """Unpickling this creates a folder: what an attacker's code would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)
