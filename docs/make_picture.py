"""Draws docs/idea.svg and docs/idea.png, the picture at the top of the README.

python docs/make_picture.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from proxysynth.paper.figures.idea import draw_idea
from proxysynth.paper.render import save_plot


def main(folder: Path) -> None:
    save_plot(folder, "idea", draw_idea(), ("svg", "png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
