"""Random first weights of the convolutional networks."""

from __future__ import annotations

from torch import nn


def initialise(network: nn.Module) -> None:
    """Draw every convolution from N(0, 2 / fan_out), so that ReLU keeps gradients at one scale.

    The fan of a grouped convolution is that of one group: a depthwise filter feeds a single
    channel, and torch's own `kaiming_normal_` would start it far too small. Batch norm keeps
    torch's start (scale 1, shift 0).                                            [He et al., 2015]
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            fan_out = height * width * module.out_channels / module.groups
            nn.init.normal_(module.weight, 0.0, (2.0 / fan_out) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
