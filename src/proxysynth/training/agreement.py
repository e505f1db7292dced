"""What all processes of a run must agree on, and this one's part of the machine."""

from __future__ import annotations

import os
from dataclasses import replace

from proxysynth.distributed.process_group import Ranks
from proxysynth.training.resources import Resources
from proxysynth.training.run import KINDS, Run
from proxysynth.training.run_folder import differences
from proxysynth.values import decode, encode


def own_resources(resources: Resources, ranks: Ranks) -> Resources:
    """This rank's part of its machine: the ranks on it share the threads that decode pictures."""
    if ranks.world == 1 or resources.workers is not None:
        return resources
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    return replace(resources, workers=max(1, resources.loader_workers // here))


def require_same_run(run: Run, ranks: Ranks) -> None:
    """An error on every rank unless all were started with the same settings."""
    told = ranks.ask(encode(run))
    for number, other in enumerate(told):
        if other != told[0]:
            what = differences(decode(told[0], KINDS), decode(other, KINDS))
            raise ValueError(
                f"all processes of a run must have the same settings, but rank {number} (here) "
                f"differs from rank 0 (there), {what}: start all with the same command"
            )


def require_pictures_for_all(run: Run, ranks: Ranks) -> None:
    """An error where a batch has not a picture for each rank."""
    if run.batch_size < ranks.world:
        raise ValueError(
            f"batch_size is divided over the processes, but {run.batch_size} pictures do not go "
            f"round {ranks.world} of them: start fewer, or raise batch_size"
        )


def require_same_pictures(fingerprint: str, ranks: Ranks) -> None:
    """An error on every rank unless all see the same pictures."""
    told = ranks.ask(fingerprint)
    for number, other in enumerate(told):
        if other != told[0]:
            raise ValueError(
                f"all processes of a run must see the same pictures, but ranks 0 and {number} do "
                f"not (hash {told[0]} and {other}): give all the same data"
            )
