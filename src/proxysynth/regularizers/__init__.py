"""What turns a loss into another loss. Torch and numpy only, above `losses`."""

from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.regularizers.third_party import synthesize_over

REGULARIZERS = {"none": None, "proxy_synthesis": ProxySynthesis}
"""What `--regularizer` takes: a class that holds a loss, or None for the loss as it is."""

__all__ = ["REGULARIZERS", "ProxySynthesis", "synthesize_over"]
