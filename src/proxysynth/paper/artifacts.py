"""Every table and figure of the paper by name. Listing them imports none of their modules."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxysynth.paper.artifact import Artifact

_ARTIFACTS = {
    "table1": ("tables.cars196", "original and synthetic embeddings and proxies (M1 to M4)"),
    "table2": ("tables.cars196", "static and stochastic generation"),
    "table3": ("tables.cars196", "robustness to deformed images"),
    "table4": ("tables.mlrc", "MLRC evaluation on three datasets, concatenated embeddings"),
    "table5": ("tables.regularizers", "comparison with other regularizers"),
    "table6": ("tables.conventional", "conventional evaluation, Recall@1 on four datasets"),
    "tableA": ("tables.cost", "time and memory over mu"),
    "tableB": ("tables.cars196", "robustness to deformed embeddings, over lam"),
    "tableC": ("tables.regularizers", "classification: alpha and mu of Proxy Synthesis"),
    "tableD": ("tables.regularizers", "classification: regularizers compared"),
    "tableE": ("tables.regularizers", "alpha of Input and Manifold Mixup"),
    "tableF": ("tables.conventional", "conventional evaluation on CUB200, all k"),
    "tableG": ("tables.mlrc", "MLRC evaluation on CUB200, concatenated and separated"),
    "tableH": ("tables.conventional", "conventional evaluation on CARS196, all k"),
    "tableI": ("tables.mlrc", "MLRC evaluation on CARS196, concatenated and separated"),
    "tableJ": ("tables.conventional", "conventional evaluation on SOP, all k"),
    "tableK": ("tables.mlrc", "MLRC evaluation on SOP, concatenated and separated"),
    "tableL": ("tables.conventional", "conventional evaluation on In-Shop, all k"),
    "figure1": ("figures.idea", "the idea of Proxy Synthesis, drawn"),
    "figure2": ("figures.toy", "decision boundaries of a toy with two Gaussian classes"),
    "figure3": ("figures.embedding_space", "t-SNE of the embedding space, CARS196"),
    "figure4": ("figures.logits", "heat map of logits and its diagonals"),
    "figure5": ("figures.scores", "Recall@1 of deformed embeddings over lam"),
    "figureA": ("figures.scores", "Recall@1 and MAP@R over alpha and mu"),
    "figureB": ("figures.embedding_space", "t-SNE of the embedding space, CUB200"),
    "figureC": ("figures.embedding_space", "t-SNE of the embedding space, SOP"),
    "figureD": ("figures.embedding_space", "t-SNE of the embedding space at four epochs"),
}
"""The module of each of the 27, and what it shows, in the order of the paper."""
TITLES = {name: title for name, (_, title) in _ARTIFACTS.items()}


def load_artifacts(names: Iterable[str] = TITLES) -> dict[str, Artifact]:
    """The artifacts of these names, in the order of the paper."""
    wanted = set(names)
    return {
        name: import_module(f"{__package__}.{module}").ARTIFACTS[name]
        for name, (module, _) in _ARTIFACTS.items()
        if name in wanted
    }
