"""Proxies divided over processes: each holds a range of the classes, none ever sees all of them."""

from proxysynth.sharding.loss import blocked_loss, check_shardable, sharded_loss
from proxysynth.sharding.negatives import sampled_classes
from proxysynth.sharding.shards import Shards

__all__ = ["Shards", "blocked_loss", "check_shardable", "sampled_classes", "sharded_loss"]
