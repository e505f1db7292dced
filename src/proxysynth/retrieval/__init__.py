"""Retrieval: exact neighbours and measures of them. Knows embeddings and labels, nothing else."""

from proxysynth.retrieval.knn import Neighbors, nearest
from proxysynth.retrieval.metrics import evaluate, summarize
from proxysynth.retrieval.ranking import Ranking, rank

__all__ = ["Neighbors", "Ranking", "evaluate", "nearest", "rank", "summarize"]
