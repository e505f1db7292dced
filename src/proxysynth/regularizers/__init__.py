"""What turns a loss into another loss. Torch only, above `losses`."""

from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.regularizers.third_party import synthesize_over

__all__ = ["ProxySynthesis", "synthesize_over"]
