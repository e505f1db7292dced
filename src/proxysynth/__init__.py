"""Proxy Synthesis over any proxy-based loss, for embeddings that serve unseen classes.

The public names are loaded when they are first used: `proxysynth --help` need not wait for torch,
and a training script that wants one loss does not load the pictures' half of the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxysynth.losses import (
        LOSSES as LOSSES,
        ArcFace as ArcFace,
        CosFace as CosFace,
        MarginSoftmax as MarginSoftmax,
        NormSoftmax as NormSoftmax,
        ProxyAnchor as ProxyAnchor,
        ProxyNCA as ProxyNCA,
        Softmax as Softmax,
        SoftTriple as SoftTriple,
        SphereFace as SphereFace,
        SquaredProxyNCA as SquaredProxyNCA,
    )
    from proxysynth.models.proxy_head import ProxyHead as ProxyHead
    from proxysynth.regularizers import (
        REGULARIZERS as REGULARIZERS,
        InputMixup as InputMixup,
        ManifoldMixup as ManifoldMixup,
        ProxySynthesis as ProxySynthesis,
        VirtualSoftmax as VirtualSoftmax,
        synthesize_over as synthesize_over,
    )
    from proxysynth.retrieval import evaluate as evaluate
    from proxysynth.search import Index as Index
    from proxysynth.training.load import load as load

__version__ = "0.1.0"

_PLACES = {
    "losses": (
        "LOSSES", "ArcFace", "CosFace", "MarginSoftmax", "NormSoftmax", "ProxyAnchor", "ProxyNCA",
        "SoftTriple", "Softmax", "SphereFace", "SquaredProxyNCA",
    ),
    "models.proxy_head": ("ProxyHead",),
    "regularizers": (
        "REGULARIZERS", "InputMixup", "ManifoldMixup", "ProxySynthesis", "VirtualSoftmax",
        "synthesize_over",
    ),
    "retrieval": ("evaluate",),
    "search": ("Index",),
    "training.load": ("load",),
}  # fmt: skip
_HOME = {name: place for place, names in _PLACES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proxysynth' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"proxysynth.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
