# ruff: noqa: F401
"""Several processes: their group, gathering with gradients, proxies divided among them."""

from proxysynth.distributed.process_group import gather_with_gradient, join_process_group
from proxysynth.distributed.sharded_loss import (
    Shards,
    blocked_loss,
    check_shardable,
    sampled_classes,
    sharded_loss,
)
