"""Proxy-based losses: frozen dataclasses, called as pure functions of (x, y, p)."""

from proxysynth.losses.margin_softmax import ArcFace, CosFace, MarginSoftmax, SphereFace
from proxysynth.losses.norm_softmax import NormSoftmax
from proxysynth.losses.proxy_anchor import ProxyAnchor
from proxysynth.losses.proxy_nca import ProxyNCA, SquaredProxyNCA
from proxysynth.losses.soft_triple import SoftTriple
from proxysynth.losses.softmax import Softmax

LOSSES = {
    "softmax": Softmax,
    "norm_softmax": NormSoftmax,
    "sphereface": SphereFace,
    "cosface": CosFace,
    "arcface": ArcFace,
    "proxy_nca": ProxyNCA,
    "soft_triple": SoftTriple,
    "proxy_anchor": ProxyAnchor,
}

__all__ = [
    "LOSSES",
    "ArcFace",
    "CosFace",
    "MarginSoftmax",
    "NormSoftmax",
    "ProxyAnchor",
    "ProxyNCA",
    "SoftTriple",
    "Softmax",
    "SphereFace",
    "SquaredProxyNCA",
]
