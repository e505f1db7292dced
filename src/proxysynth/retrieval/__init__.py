"""Retrieval: exact nearest neighbors, metrics, thresholds. Knows embeddings and labels only."""

from proxysynth.retrieval.calibration import Calibration, calibrate
from proxysynth.retrieval.knn import Neighbors, nearest
from proxysynth.retrieval.metrics import Ranking, evaluate, rank, summarize

__all__ = [
    "Calibration",
    "Neighbors",
    "Ranking",
    "calibrate",
    "evaluate",
    "nearest",
    "rank",
    "summarize",
]
