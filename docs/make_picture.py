"""Draws the three panels of the picture on the home page of the site: docs/idea_a.png, b and c.

python docs/make_picture.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from proxysynth.paper.figures.idea import draw_idea


def main(folder: Path) -> None:
    figure = draw_idea()
    figure.draw_without_rendering()  # places the panels
    figure.set_layout_engine("none")  # ... where they stay without the legend
    for legend in figure.legends:
        legend.remove()
    for letter, axes in zip("abc", figure.axes, strict=True):
        inside = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        path = folder / f"idea_{letter}.png"
        # Without the version of matplotlib: the same picture always gives the same file.
        figure.savefig(path, dpi=300, bbox_inches=inside, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
