"""The paper's figures, made again. A module draws one figure or one kind; `style` is theirs all."""

from __future__ import annotations

from proxysynth.paper.artifact import Artifact
from proxysynth.paper.figures.boundaries import FIGURE_2
from proxysynth.paper.figures.embedding_space import SPACES
from proxysynth.paper.figures.grid import FIGURE_A
from proxysynth.paper.figures.idea import FIGURE_1
from proxysynth.paper.figures.logits import FIGURE_4
from proxysynth.paper.figures.mixtures import FIGURE_5

FIGURES: dict[str, Artifact] = {
    artifact.name: artifact
    for artifact in sorted(
        (FIGURE_1, FIGURE_2, *SPACES, FIGURE_4, FIGURE_5, FIGURE_A),
        key=lambda artifact: artifact.name,
    )
}
"""figure1 to figure5 and figureA to figureD."""
