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
from proxysynth.regularizers import ProxySynthesis, synthesize_over

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
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
    "synthesize_over",
]
