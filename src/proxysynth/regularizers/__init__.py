"""Regularizers wrap a loss. They need torch and numpy only."""

from proxysynth.regularizers.mixup import InputMixup, ManifoldMixup
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.regularizers.third_party import synthesize_over
from proxysynth.regularizers.virtual_softmax import VirtualSoftmax

Regularizer = ProxySynthesis | VirtualSoftmax | InputMixup | ManifoldMixup

REGULARIZERS = {
    "none": None,
    "proxy_synthesis": ProxySynthesis,
    "virtual_softmax": VirtualSoftmax,
    "input_mixup": InputMixup,
    "manifold_mixup": ManifoldMixup,
}
"""What `--regularizer` takes: a class that wraps a loss, or None for the plain loss."""

__all__ = [
    "REGULARIZERS",
    "InputMixup",
    "ManifoldMixup",
    "ProxySynthesis",
    "Regularizer",
    "VirtualSoftmax",
    "synthesize_over",
]
