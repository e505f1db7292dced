"""Protocols: how a trained model is measured."""

from proxysynth.protocols.contact_sheet import contact_sheet
from proxysynth.protocols.conventional import Conventional, own_splits
from proxysynth.protocols.deformation import Deformation
from proxysynth.protocols.embedding_deformation import EmbeddingDeformation
from proxysynth.protocols.loaders import embeddings_of

__all__ = [
    "Conventional",
    "Deformation",
    "EmbeddingDeformation",
    "contact_sheet",
    "embeddings_of",
    "own_splits",
]
