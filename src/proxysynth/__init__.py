"""Deep metric learning for unseen classes: Proxy Synthesis over any proxy-based loss.

    import proxysynth as ps

    loss = ps.ProxySynthesis(ps.NormSoftmax(scale=23.0), alpha=0.4, mu=1.0)
    value = loss(x, y, p)

Public names and subpackages are imported when they are first used, so that `import proxysynth` and
`proxysynth --help` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names in `_NAMES`, for type checkers and editors
    from proxysynth.losses import *  # noqa: F403
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
    from proxysynth.search.build import build_index as build_index
    from proxysynth.search.export import export as export
    from proxysynth.search.index import Index as Index
    from proxysynth.training.inference import load as load
    from proxysynth.training.loop import train as train
    from proxysynth.training.run import Run as Run, Split as Split

    __version__: str

_NAMES = {
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
    "search.build": ("build_index",),
    "search.export": ("export",),
    "search.index": ("Index",),
    "training": ("Run", "Split", "load", "train"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_SUBPACKAGES = (
    "data", "distributed", "losses", "models", "paper", "protocols", "regularizers", "report",
    "retrieval", "search", "training", "web",
)  # fmt: skip

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"proxysynth.{name}")
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("proxysynth")
        except PackageNotFoundError:
            return "unknown"  # sources on PYTHONPATH, not installed
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'proxysynth' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"proxysynth.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
