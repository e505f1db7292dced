"""Scale: how much of the paper's work is done. It maps what the paper trained to Runs.

paper   section C.2 as printed; needs a GPU and the downloads
small   distorted glyphs stand in for the benchmarks, two hours on one core; photographs where a
        folder is given: CUB at 96 pixels, 2,000 images of CIFAR-10
smoke   a few training steps on a few glyphs: checks the code, the numbers are meaningless

The glyphs have about the benchmark's number of classes and of images per class where a CPU allows
it. The strength of the distortion was chosen by training the plain loss alone, one seed, until it
was between 60 and 90, where a method can show that it is better or worse; this was written down
before Proxy Synthesis was trained on any of them. What the plain loss reached:

    Norm-softmax, Recall@1 on unseen classes      Softmax, accuracy
    CUB200    strength 0.75   79.1                CIFAR-10      strength 1.5    77.5
    CARS196   strength 0.75   78.0                CIFAR-100     strength 1.0    67.2
    SOP       strength 0.2    64.4                SVHN          strength 1.5    81.2
    In-Shop   strength 0.2    64.0                TinyImageNet  strength 0.75   74.3
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from proxysynth.data.folders import absolute
from proxysynth.formatting import count
from proxysynth.losses import ProxyAnchor
from proxysynth.losses.functional import plain_loss
from proxysynth.paper.settings import paper_settings, trained_loss
from proxysynth.training.inference import reported_ks
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import look_up, parse_field, parse_settings

NAMES = {
    "cub200": "CUB200",
    "cars196": "CARS196",
    "sop": "SOP",
    "inshop": "In-Shop",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "tiny_imagenet": "TinyImageNet",
}
"""The column headings of the paper's tables."""
RETRIEVAL, CLASSIFICATION = tuple(NAMES)[:4], tuple(NAMES)[4:]
KS = {name: reported_ks(Run(data=name)) for name in RETRIEVAL}

ALPHAS, MUS = (0.2, 0.4, 0.8, 1.0, 1.5, 2.0), (0.2, 0.5, 1.0, 1.5, 2.0)  # Figure A
FIXED = ("data", "loss", "regularizer", "split", "seed", "task", "report_epoch", "best_by", "ks")
"""Fields of Run that `--set` cannot change."""

# Stand-ins


class StandIn(NamedTuple):
    """Fields of a Run, a column heading, and a description."""

    fields: dict[str, Any]
    heading: str
    about: str


NOTHING = StandIn({}, "", "")
NETWORK = {"backbone": "conv4", "width": 0.5, "batch_size": 64, "lr": 2e-3, "proxy_lr": 2e-2}
FEW_EPOCHS = {"schedule": "cosine", "decay_epochs": ()}  # instead of the paper's steps


def _stand_in(heading: str, about: str, epochs: int, fields: dict[str, Any]) -> StandIn:
    """A short training, evaluated at its end."""
    fields = {**fields, "epochs": epochs, "evaluate_every": epochs}
    return StandIn(fields, heading, f"{heading}: {about}, {count(epochs, 'epoch')}")


def _glyphs(
    number: int, strength: float, train: int, test: int, pictures: int, epochs: int, **more: Any
) -> StandIn:
    """Characters seen in training, and others."""
    queries = f", queries in {more['query_faces']} faces" if "query_faces" in more else ""
    about = (
        f"strength {strength:g}, {pictures} images of each of {train} characters seen and {test} "
        f"others unseen{queries}; half of conv4's width from scratch"
    )
    more |= {"seed": number - 1, "distortion": strength, "pictures_per_class": pictures}
    split = Split(train_classes=train, test_classes=test, **more)
    fields = {**NETWORK, "data": "glyphs", "split": split}
    return _stand_in(f"distorted glyphs {number}", about, epochs, fields)


def _faces(number: int, strength: float, classes: int, pictures: int, epochs: int) -> StandIn:
    """The same characters in training and test; four of the sixteen faces are for testing."""
    about = (
        f"strength {strength:g}, {classes} characters, {pictures} images of each, 12 faces for "
        "training and 4 for testing; half of conv4's width"
    )
    split = Split(
        seed=3 + number, distortion=strength, train_classes=classes, test_classes=2, test_faces=4,
        pictures_per_class=pictures,
    )  # fmt: skip
    fields = {
        **paper_settings("cifar10"), **FEW_EPOCHS, "pixels": None, "image_size": None,
        "augment": False, "backbone": "conv4", "width": 0.5, "batch_size": 64, "data": "glyphs",
        "split": split,
    }  # fmt: skip
    return _stand_in(f"distorted faces {number}", about, epochs, fields)


SMALL = {
    "cub200": _glyphs(1, 0.75, 100, 100, 30, 6),
    "cars196": _glyphs(2, 0.75, 98, 98, 80, 3, test_pictures=1960),
    "sop": _glyphs(3, 0.2, 800, 300, 5, 8, faces_per_class=5),
    "inshop": _glyphs(4, 0.2, 400, 200, 8, 8, faces_per_class=8, query_faces=8),
    "cifar10": _faces(1, 1.5, 10, 160, 10),
    "cifar100": _faces(2, 1.0, 100, 48, 6),
    "svhn": _faces(3, 1.5, 10, 320, 6),
    "tiny_imagenet": _faces(4, 0.75, 200, 32, 6),
}
SMOKE = {
    "cub200": _glyphs(1, 0.75, 12, 12, 16, 1),
    "cars196": _glyphs(2, 0.75, 12, 12, 16, 1),
    "sop": _glyphs(3, 0.2, 32, 12, 5, 1, faces_per_class=5),
    "inshop": _glyphs(4, 0.2, 12, 12, 8, 1, faces_per_class=8, query_faces=8),
    "cifar10": _faces(1, 1.5, 8, 16, 1),
}
CUB_96 = _stand_in(
    "CUB at 96 px",
    "CUB-200-2011, the paper's split, at 96 pixels; EfficientNet-Lite0 from its ImageNet weights",
    12,
    {
        "image_size": 96, "augment": True, "batch_size": 128, "backbone": "efficientnet_lite0",
        "pretrained": True, "dim": 512, "freeze_batch_norm": True, "schedule": "step",
        "decay_epochs": (8,), "lr": 1e-4, "proxy_lr": 1e-2, "weight_decay": 1e-4,
    },
)  # fmt: skip
# They can be drawn from part of the download too.
FEW_IMAGES = Split(train_pictures=2000, test_pictures=2000, incomplete=True)
WITH_DATA = {"cub200": CUB_96} | {
    name: _stand_in(
        f"{NAMES[name]}, 2,000 images",
        "PreActResNet18 at a quarter of its width, 2,000 training and 2,000 test images",
        15,
        {**paper_settings(name), **FEW_EPOCHS, "width": 0.25, "split": FEW_IMAGES},
    )
    for name in CLASSIFICATION
}
"""What is trained at the scale small where the folder of a benchmark is given."""


# Scales


@dataclass(frozen=True)
class Scale:
    """How much is done, on what, over which seeds."""

    name: str
    seeds: tuple[int, ...]  # of every reported number; searches have the seed 0
    mixup_alphas: tuple[float, ...] = (0.3, 0.4, 0.5, 1.0, 1.5, 2.0)  # Table E
    class_alphas: tuple[float, ...] = (0.4, 1.0, 1.5, 2.0)  # Table C
    class_mus: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    search_alphas: tuple[float, ...] = ALPHAS  # the grid that Table 6 chooses from
    search_mus: tuple[float, ...] = MUS
    figure_alphas: tuple[float, ...] = ALPHAS
    figure_mus: tuple[float, ...] = MUS
    roots: tuple[tuple[str, str], ...] = ()  # (benchmark, folder)
    settings: tuple[tuple[str, Any], ...] = ()  # (field, value), of every Run

    def with_roots(self, roots: dict[str, str]) -> Scale:
        """This scale with the folders of benchmarks, as absolute paths."""
        for name in roots:
            look_up(name, NAMES, "benchmark")
        made = sorted((name, str(absolute(root))) for name, root in roots.items())
        return replace(self, roots=tuple(made))

    def with_settings(self, settings: Iterable[str]) -> Scale:
        """This scale with `--set` arguments, "field=value", that reach every Run. What makes an
        artifact what it is, such as the loss, cannot be set."""
        parsed = {}
        for path, text in parse_settings(settings).items():
            if path.partition(".")[0] in FIXED:
                raise ValueError(f"--set {path}: the tables and figures decide it, remove it")
            parsed[path] = parse_field(Run, path, text, KINDS)
        if parsed.get("weights"):
            parsed["weights"] = str(absolute(parsed["weights"]))
        made = replace(self, settings=tuple(sorted(parsed.items())))
        runs = [made.run(name, "norm_softmax") for name in NAMES]  # which checks the values
        used = self.name == "paper" or any(run and run.weights for run in runs)
        if parsed.get("weights") and not used:
            raise ValueError(
                f"--set weights: no network at --scale {self.name} starts from published weights: "
                "remove it or choose --scale paper"
            )
        return made

    @cache  # noqa: B019 (few scales; tables ask for the same Runs again, and a Run is checked)
    def run(self, benchmark: str, loss: Any, seed: int = 0, **changes: Any) -> Run | None:
        """The Run that stands for the paper's training on this benchmark; None if this scale has
        no images of it.

        Args:
            benchmark: a key of `NAMES`, for retrieval or classification.
            loss: a loss, a regularizer that holds one, or the name of a loss.
            changes: further fields of `Run`.
        """
        loss = trained_loss(loss) if isinstance(loss, str) else loss
        kind = "proxy_anchor" if isinstance(plain_loss(loss), ProxyAnchor) else ""
        fields = self.stand_in(benchmark, kind).fields
        if not fields:
            return None
        ks = {"ks": KS[benchmark]} if benchmark in KS else {}
        run = Run(**{**fields, "loss": loss, "seed": seed, **ks, **changes})
        settings = dict(self.settings)
        if run.pretrained is False:  # weights are for networks that start from published ones
            settings.pop("weights", None)
        return replace(run, **settings)

    def heading(self, benchmark: str) -> str:
        """What runs in place of a benchmark, as a column heading; "" if nothing does."""
        return self.stand_in(benchmark).heading

    def stand_in(self, benchmark: str, loss: str = "") -> StandIn:
        """What runs in place of a benchmark, or `NOTHING`; at the paper's scale, the benchmark
        itself. `loss` matters only there, where Proxy-anchor has settings of its own."""
        name, root = look_up(benchmark, NAMES, "benchmark"), dict(self.roots).get(benchmark)
        if self.name == "smoke":
            return SMOKE.get(benchmark, NOTHING)
        if self.name == "small" and (not root or benchmark not in WITH_DATA):
            return SMALL[benchmark]
        if not root:
            return NOTHING
        found = WITH_DATA.get(benchmark, NOTHING)
        if self.name == "paper":
            found = StandIn(paper_settings(benchmark, loss), name, f"{name}: as section C.2 says")
        return found._replace(fields={**found.fields, "data": f"{benchmark}:{root}"})


SCALES = {
    "smoke": Scale(
        "smoke", seeds=(0,), mixup_alphas=(0.4, 1.0),
        class_alphas=(0.4, 1.0), class_mus=(0.5, 1.0),
        search_alphas=(0.4, 1.0), search_mus=(1.0,),
        figure_alphas=(0.2, 0.4), figure_mus=(0.5, 1.0),
    ),
    "small": Scale(
        "small", seeds=(0, 1, 2), mixup_alphas=(0.4, 1.0, 2.0),
        class_alphas=(0.4, 1.0, 2.0), class_mus=(0.25, 0.5, 1.0),
        search_alphas=(0.2, 0.4, 1.0), search_mus=(0.5, 1.0),
        figure_alphas=(0.2, 0.4, 1.0, 2.0), figure_mus=(0.5, 1.0, 2.0),
    ),
    "paper": Scale("paper", seeds=(0, 1, 2, 3, 4)),
}  # fmt: skip
