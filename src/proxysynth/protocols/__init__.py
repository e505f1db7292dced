"""Protocols: how a trained model is measured."""

from proxysynth.protocols.conventional import Conventional, embeddings_of, own_splits
from proxysynth.protocols.deformation import Deformation, contact_sheet
from proxysynth.protocols.embedding_deformation import EmbeddingDeformation

__all__ = [
    "Conventional",
    "Deformation",
    "EmbeddingDeformation",
    "contact_sheet",
    "embeddings_of",
    "own_splits",
]
