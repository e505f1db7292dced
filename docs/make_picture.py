"""Draws docs/idea.svg and docs/idea.png, the picture at the top of the README: Figure 1 of `paper`.

python docs/make_picture.py [FOLDER]
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from matplotlib import rc_context

from proxysynth.paper.figures.idea import draw_idea
from proxysynth.training.durable import write_bytes


def main(folder: Path) -> None:
    """Write both files; the same bytes every time, so that a change of them is a change of it."""
    figure = draw_idea()
    for ending in ("svg", "png"):
        file = io.BytesIO()
        with rc_context({"svg.hashsalt": "proxysynth"}):
            about = {"Date": None} if ending == "svg" else {"Software": None}
            figure.savefig(file, format=ending, dpi=200, facecolor="white", metadata=about)
        write_bytes(folder / f"idea.{ending}", file.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
