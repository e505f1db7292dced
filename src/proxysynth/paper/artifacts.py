"""Every table and figure of the paper by name. Listing them imports none of their modules."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxysynth.paper.artifact import Artifact

_MODULES = {
    "tables.ablations": ("table1", "table2"),
    "tables.robustness": ("table3", "tableB"),
    "tables.mlrc": ("table4", "tableG", "tableI", "tableK"),
    "tables.regularizers": ("table5", "tableC", "tableD", "tableE"),
    "tables.conventional": ("table6", "tableF", "tableH", "tableJ", "tableL"),
    "tables.cost": ("tableA",),
    "figures.idea": ("figure1",),
    "figures.toy": ("figure2",),
    "figures.embedding_space": ("figure3", "figureB", "figureC", "figureD"),
    "figures.logits": ("figure4",),
    "figures.scores": ("figure5", "figureA"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

TITLES = {
    "table1": "original and synthetic embeddings and proxies (M1 to M4)",
    "table2": "static and stochastic generation",
    "table3": "robustness to deformed images",
    "table4": "MLRC evaluation on three data sets, concatenated embeddings",
    "table5": "comparison with other regularizers",
    "table6": "conventional evaluation, Recall@1 on four data sets",
    "tableA": "time and memory over mu",
    "tableB": "robustness to deformed embeddings, over lam",
    "tableC": "classification: alpha and mu of Proxy Synthesis",
    "tableD": "classification: regularizers compared",
    "tableE": "alpha of Input and Manifold Mixup",
    "tableF": "conventional evaluation on CUB200, all k",
    "tableG": "MLRC evaluation on CUB200, concatenated and separated",
    "tableH": "conventional evaluation on CARS196, all k",
    "tableI": "MLRC evaluation on CARS196, concatenated and separated",
    "tableJ": "conventional evaluation on SOP, all k",
    "tableK": "MLRC evaluation on SOP, concatenated and separated",
    "tableL": "conventional evaluation on In-Shop, all k",
    "figure1": "the idea of Proxy Synthesis, drawn",
    "figure2": "decision boundaries of a toy with two Gaussian classes",
    "figure3": "t-SNE of the embedding space, CARS196",
    "figure4": "heat map of logits and its diagonals",
    "figure5": "Recall@1 of deformed embeddings over lam",
    "figureA": "Recall@1 and MAP@R over alpha and mu",
    "figureB": "t-SNE of the embedding space, CUB200",
    "figureC": "t-SNE of the embedding space, SOP",
    "figureD": "t-SNE of the embedding space at four epochs",
}
"""What each of the 27 shows, in the order of the paper."""


def load_artifacts(names: Iterable[str] = TITLES) -> dict[str, Artifact]:
    """The artifacts of these names, in the order of the paper."""
    wanted = set(names)
    return {
        name: import_module(f"{__package__}.{_MODULE_OF[name]}").ARTIFACTS[name]
        for name in TITLES
        if name in wanted
    }
