"""Retrieval: exact nearest neighbors and metrics. Knows embeddings and labels, nothing else."""

from proxysynth.retrieval.knn import Neighbors, nearest
from proxysynth.retrieval.metrics import Ranking, evaluate, rank, summarize

__all__ = ["Neighbors", "Ranking", "evaluate", "nearest", "rank", "summarize"]
