"""One of four processes: computes its part of every case and writes down what it found.

python process.py RANK STORE FOLDER
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from distributed.cases import CASES, WORLDS, generator
from proxysynth.distributed import Shards, sharded_loss


def main(rank: int, store: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=max(WORLDS),
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    groups = {world: dist.new_group(list(range(world))) for world in WORLDS}
    found = {}
    for number, case in enumerate(CASES):
        if rank >= case.world:
            continue
        x, y, p = case.tensors()
        shards = Shards(case.classes, case.world, rank)
        x, part = x.detach().requires_grad_(), p.detach()[shards.rows].clone().requires_grad_()
        value = sharded_loss(
            case.loss, x, y, part, shards, groups[case.world], generator(), case.negatives,
            case.block,
        )  # fmt: skip
        (-2.5 * value).backward()
        found[f"{number}.value"] = value.detach()
        found[f"{number}.x"], found[f"{number}.p"] = x.grad, part.grad
    save_file(found, folder / f"{rank}.safetensors")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
