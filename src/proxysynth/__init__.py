"""Proxy Synthesis over any proxy-based loss, for embeddings that serve unseen classes."""

from proxysynth.losses import (
    LOSSES,
    ArcFace,
    CosFace,
    MarginSoftmax,
    NormSoftmax,
    ProxyAnchor,
    ProxyNCA,
    Softmax,
    SoftTriple,
    SphereFace,
    SquaredProxyNCA,
)
from proxysynth.models.proxy_head import ProxyHead
from proxysynth.regularizers import REGULARIZERS, ProxySynthesis, synthesize_over
from proxysynth.retrieval import evaluate

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "ArcFace",
    "CosFace",
    "MarginSoftmax",
    "NormSoftmax",
    "ProxyAnchor",
    "ProxyHead",
    "ProxyNCA",
    "ProxySynthesis",
    "SoftTriple",
    "Softmax",
    "SphereFace",
    "SquaredProxyNCA",
    "__version__",
    "evaluate",
    "load",
    "synthesize_over",
]


def __getattr__(name: str) -> object:
    # Pictures and networks are loaded with the first run, not with the first loss.
    if name == "load":
        from proxysynth.training.load import load

        return load
    raise AttributeError(f"module 'proxysynth' has no attribute {name!r}")
