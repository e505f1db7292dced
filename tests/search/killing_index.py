"""A program that indexes a folder in child processes and kills them at random moments.

    python killing_index.py RUN FOLDER KILLS SEED

It imports everything once and forks. The folder changes between two states; after each kill the
index must be the one of the old state or of the new one, whole. Prints how often each was there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from forked import forked
from proxysynth.search import Index, build as module
from proxysynth.search.build import update_index
from proxysynth.search.model import open_model


def main() -> None:
    run, base = sys.argv[1], Path(sys.argv[2])
    kills, draw = int(sys.argv[3]), random.Random(int(sys.argv[4]))
    module.BATCH, module.JOURNAL_SECONDS = 4, 0  # the journal is written several times
    model, photos, out = open_model(run, "cpu"), base / "photos", base / "shop.index"
    pictures = sorted(photos.rglob("*.png"))
    aside = base / "aside"
    aside.mkdir()

    def child() -> int:
        return forked(lambda: update_index(model, photos, out))

    def build() -> None:
        if os.waitpid(child(), 0)[1]:
            sys.exit("a build without a kill failed")

    def state() -> tuple[list[str], torch.Tensor]:
        index = Index.open(out)
        return list(index.paths), index.vectors().clone()

    def same(one: tuple[list[str], torch.Tensor], other: tuple[list[str], torch.Tensor]) -> bool:
        return one[0] == other[0] and torch.allclose(one[1], other[1], rtol=0, atol=1e-6)

    def swap(step: int) -> None:
        """Other pictures are there, and others are gone, than the step before."""
        for number, path in enumerate(pictures):
            put, gone = aside / f"{number}.png", number % 2 == step % 2
            if gone and path.exists():
                path.rename(put)
            elif not gone and put.exists():
                put.rename(path)

    states = []
    for step in (0, 1):
        swap(step)
        out.unlink(missing_ok=True)
        begun = time.perf_counter()
        build()
        whole = time.perf_counter() - begun
        states.append(state())
    killed, old, new, step = 0, 0, 0, 0
    while killed < kills:
        swap(step)
        while True:
            pid = child()
            if killed < kills:
                time.sleep(draw.uniform(0, 1.5 * whole))
                os.kill(pid, signal.SIGKILL)
            status, here = os.waitpid(pid, 0)[1], state()
            if same(here, states[step % 2]):
                new += 1
            elif same(here, states[1 - step % 2]):
                old += 1
            else:
                sys.exit(f"after {killed} kills the index is neither the old one nor the new one")
            killed += os.WIFSIGNALED(status)
            if not os.WIFSIGNALED(status) and status:
                sys.exit(f"a child failed after {killed} kills")
            if same(here, states[step % 2]):
                break
        step += 1
    build()
    left = [path.name for path in base.iterdir() if path.name.startswith(".")]
    print(json.dumps({"killed": killed, "old": old, "new": new, "left": left}))


if __name__ == "__main__":
    main()
