"""What turns a loss into another loss. Torch and numpy only, above `losses`."""

from proxysynth.regularizers.mixup import InputMixup, ManifoldMixup
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.regularizers.third_party import synthesize_over
from proxysynth.regularizers.virtual_softmax import VirtualSoftmax

Regularizer = ProxySynthesis | VirtualSoftmax | InputMixup | ManifoldMixup
"""A value that holds a loss."""

REGULARIZERS = {
    "none": None,
    "proxy_synthesis": ProxySynthesis,
    "virtual_softmax": VirtualSoftmax,
    "input_mixup": InputMixup,
    "manifold_mixup": ManifoldMixup,
}
"""What `--regularizer` takes: a class that holds a loss, or None for the loss as it is."""

__all__ = [
    "REGULARIZERS",
    "InputMixup",
    "ManifoldMixup",
    "ProxySynthesis",
    "Regularizer",
    "VirtualSoftmax",
    "synthesize_over",
]
