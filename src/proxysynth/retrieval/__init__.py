"""Retrieval: exact neighbours and measures of them. Knows embeddings and labels, nothing else."""

from proxysynth.retrieval.metrics import evaluate, summarize
from proxysynth.retrieval.neighbours import Neighbours, nearest
from proxysynth.retrieval.ranking import Ranking, rank

__all__ = ["Neighbours", "Ranking", "evaluate", "nearest", "rank", "summarize"]
