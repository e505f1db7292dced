"""Scale: how much of the paper's work is done. It maps what the paper trained to Runs.

paper   section C.2 as printed; needs a GPU and the downloads
small   distorted glyphs stand in for the benchmarks, two hours on one core; photographs where a
        folder is given: CUB at 96 pixels, 2,000 images of CIFAR-10
smoke   a few training steps on a few glyphs: checks the code, the numbers are meaningless
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from proxysynth.losses import ProxyAnchor
from proxysynth.losses.functional import plain_loss
from proxysynth.paper.settings import paper_settings, trained_loss, values_of
from proxysynth.paper.stand_ins import (
    CUB_96,
    KS,
    NAMES,
    SMALL,
    SMOKE,
    StandIn,
    small_classification,
)
from proxysynth.training.run import KINDS, Run
from proxysynth.values import look_up, parse_field, parse_settings

__all__ = ["SCALES", "Scale", "trained_loss"]

MIXUP_ALPHAS = (0.3, 0.4, 0.5, 1.0, 1.5, 2.0)  # Table E
ALPHAS, MUS = (0.2, 0.4, 0.8, 1.0, 1.5, 2.0), (0.2, 0.5, 1.0, 1.5, 2.0)  # Figure A
CLASS_ALPHAS, CLASS_MUS = (0.4, 1.0, 1.5, 2.0), (0.25, 0.5, 0.75, 1.0)  # Table C
FIXED = ("data", "loss", "regularizer", "split", "seed", "task", "report_epoch", "best_by", "ks")
"""Fields of Run that `--set` cannot change."""


@dataclass(frozen=True)
class Scale:
    """How much is done, on what, over which seeds."""

    name: str
    seeds: tuple[int, ...]  # of every reported number
    search_seeds: tuple[int, ...]  # of every setting that a search tries
    mixup_alphas: tuple[float, ...] = MIXUP_ALPHAS
    class_alphas: tuple[float, ...] = CLASS_ALPHAS
    class_mus: tuple[float, ...] = CLASS_MUS
    search_alphas: tuple[float, ...] = ALPHAS  # the grid that Table 6 chooses from
    search_mus: tuple[float, ...] = MUS
    figure_alphas: tuple[float, ...] = ALPHAS
    figure_mus: tuple[float, ...] = MUS
    roots: tuple[tuple[str, str], ...] = ()  # (benchmark, folder)
    settings: tuple[
        tuple[str, Any], ...
    ] = ()  # (field, value) of every Run, whatever the paper says

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("a scale needs at least one seed, got none")
        for name, _ in self.roots:
            look_up(name, NAMES, "benchmark")

    def with_roots(self, roots: dict[str, str]) -> Scale:
        """This scale with the folders of benchmarks, as absolute paths."""
        made = {name: os.path.abspath(os.path.expanduser(root)) for name, root in roots.items()}
        return replace(self, roots=tuple(sorted(made.items())))

    def with_settings(self, settings: Iterable[str]) -> Scale:
        """This scale with `--set` arguments, "field=value", that reach every Run.

        What makes an artifact what it is, such as the loss, cannot be set.
        """
        parsed = {}
        for path, text in parse_settings(settings).items():
            if path.partition(".")[0] in FIXED:
                raise ValueError(f"--set {path}: the tables and figures decide it, remove it")
            parsed[path] = parse_field(Run, path, text, KINDS)
            if path == "weights" and parsed[path]:
                parsed[path] = os.path.abspath(os.path.expanduser(parsed[path]))
        made = replace(self, settings=tuple(sorted(parsed.items())))
        runs = [made.run(name, "norm_softmax") for name in NAMES]
        used = self.name == "paper" or any(run and run.weights for run in runs)
        if parsed.get("weights") and not used:
            raise ValueError(
                f"--set weights: no network at --scale {self.name} starts from published weights: "
                "remove it or choose --scale paper"
            )
        return made

    def root(self, benchmark: str) -> str | None:
        """The folder of a benchmark, None if not given."""
        return dict(self.roots).get(benchmark)

    def run(self, benchmark: str, loss: Any, seed: int = 0, **changes: Any) -> Run | None:
        """The Run that stands for the paper's training on this benchmark.

        Args:
            benchmark: a key of `NAMES`, for retrieval or classification.
            loss: a loss, a regularizer that holds one, or the name of a loss.
            seed: of all random draws.
            changes: further fields of `Run`.

        Returns:
            The Run, or None if this scale has no images of the benchmark.
        """
        loss = trained_loss(loss) if isinstance(loss, str) else loss
        return _run(self, benchmark, loss, seed, tuple(sorted(changes.items())))

    def at_epoch(self, epoch: int) -> dict[str, Any]:
        """The fields of a Run that ends at this epoch, at the paper's scale; none at the others.

        The learning rates of C.2 fall in steps, so it is the longer Run up to there.
        """
        return {"epochs": epoch, "report_epoch": "last"} if self.name == "paper" else {}

    def heading(self, benchmark: str) -> str:
        """What runs in place of a benchmark, as a column heading; "" if nothing does."""
        found = self.stand_in(benchmark)
        return "" if found is None else found.heading

    def about(self, benchmark: str) -> str:
        """What runs in place of a benchmark, as half a sentence; "" if nothing does."""
        found = self.stand_in(benchmark)
        return "" if found is None else found.about

    def stand_in(self, benchmark: str, loss: str = "norm_softmax") -> StandIn | None:
        """What runs in place of a benchmark; at the paper's scale, the benchmark itself. `loss`
        matters only there, where Proxy-anchor has settings of its own."""
        name, root = look_up(benchmark, NAMES, "benchmark"), self.root(benchmark)
        if self.name == "smoke":
            return SMOKE.get(benchmark)
        found: StandIn | None = None
        if self.name == "paper":
            settings = paper_settings(benchmark, loss)
            found = StandIn(values_of(settings), name, f"{name}: as section C.2 says")
        elif root:
            found = CUB_96 if benchmark == "cub200" else small_classification(benchmark)
        if root and found:
            return found._replace(fields={**found.fields, "data": f"{benchmark}:{root}"})
        return SMALL[benchmark] if self.name == "small" else None


# Tables ask for the same Runs many times, and creating one checks every field: cache them.
@cache
def _run(
    scale: Scale, name: str, loss: Any, seed: int, changes: tuple[tuple[str, Any], ...]
) -> Run | None:
    kind = "proxy_anchor" if isinstance(plain_loss(loss), ProxyAnchor) else ""
    found = scale.stand_in(name, kind)
    if found is None:
        return None
    ks = {"ks": KS[name]} if name in KS else {}
    run = Run(**{**found.fields, "loss": loss, "seed": seed, **ks, **dict(changes)})
    settings = dict(scale.settings)
    if run.pretrained is False:  # weights are for networks that start from published ones
        settings.pop("weights", None)
    return replace(run, **settings) if settings else run


SCALES = {
    "smoke": Scale(
        "smoke",
        seeds=(0,),
        search_seeds=(0,),
        mixup_alphas=(0.4, 1.0),
        class_alphas=(0.4, 1.0),
        class_mus=(0.5, 1.0),
        search_alphas=(0.4, 1.0),
        search_mus=(1.0,),
        figure_alphas=(0.2, 0.4),
        figure_mus=(0.5, 1.0),
    ),
    "small": Scale(
        "small",
        seeds=(0, 1, 2),
        search_seeds=(0,),
        mixup_alphas=(0.4, 1.0, 2.0),
        class_alphas=(0.4, 1.0, 2.0),
        class_mus=(0.25, 0.5, 1.0),
        search_alphas=(0.2, 0.4, 1.0),
        search_mus=(0.5, 1.0),
        figure_alphas=(0.2, 0.4, 1.0, 2.0),
        figure_mus=(0.5, 1.0, 2.0),
    ),
    "paper": Scale("paper", seeds=(0, 1, 2, 3, 4), search_seeds=(0,)),
}
