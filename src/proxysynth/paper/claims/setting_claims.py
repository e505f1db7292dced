"""Claims about settings: what section C.2 says, against what the scale `paper` trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

from proxysynth.data.protocol_transforms import MLRC
from proxysynth.data.transforms import CenterCrop, RandomResizedCrop
from proxysynth.paper.claims.claim import Claim, Evidence, Verdict, held
from proxysynth.paper.scale import SCALES
from proxysynth.paper.settings import conventional, mlrc
from proxysynth.paper.stand_ins import NAMES, RETRIEVAL
from proxysynth.protocols.mlrc.settings import SCALES as STUDIES
from proxysynth.training.run import Run

Found = dict[str, tuple[Any, Any]]
"""By what it is of: the paper's value, and ours."""


def _same(find: Callable[[], Found], e: Evidence) -> Verdict:
    found = find()
    told = ", ".join(f"{name} {_word(ours)}" for name, (_, ours) in found.items())
    return held(all(stated == ours for stated, ours in found.values()), told)


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_word, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _each(field: str, stated: dict[str, Any]) -> Found:
    """A field of the conventional Run of each set."""
    return {
        f"{NAMES[name]} {field.replace('_', ' ')}": (value, getattr(conventional(name), field))
        for name, value in stated.items()
    }


def _rates() -> Found:
    lrs = {"cub200": 1e-4, "cars196": 1e-4, "sop": 1e-3, "inshop": 1e-3}
    return {
        **_each("lr", lrs),
        **_of(conventional("cub200"), optimizer="adam", batch_size=128),
    }


def _decays() -> Found:
    at = {"cars196": (50,), "inshop": (60,), "cub200": (20,), "sop": (20,)}
    return {**_each("decay_epochs", at), **_of(conventional("cub200"), decay=0.1)}


def _of(run: Run, **stated: Any) -> Found:
    """Fields of one Run."""
    return {name.replace("_", " "): (value, getattr(run, name)) for name, value in stated.items()}


def _synthesis() -> Found:
    loss: Any = conventional("cars196", "norm_softmax", "proxy_synthesis").loss
    return {"alpha": (0.4, loss.alpha), "mu": (1.0, loss.mu)}


def _anchor() -> Found:
    run = conventional("cub200", "proxy_anchor")
    return {
        **_of(run, batch_size=180, optimizer="adamw", pooling="both"),
        "warm-up": (True, run.warmup_epochs > 0),
    }


def _margins() -> Found:
    stated = {
        "sphereface": (30.0, 1.05, 0.0, 0.0),
        "cosface": (23.0, 1.0, 0.0, 0.1),
        "arcface": (23.0, 1.0, 0.1, 0.0),
    }
    found: Found = {}
    for name, values in stated.items():
        loss: Any = conventional("cub200", name).loss
        found[f"{type(loss).__name__} scale/m1/m2/m3"] = (
            values, (loss.scale, loss.m1, loss.m2, loss.m3)
        )  # fmt: skip
    return found


def _grid() -> Found:
    paper = SCALES["paper"]
    return {
        "alpha": ((0.2, 0.4, 0.8, 1.0, 1.5, 2.0), paper.figure_alphas),
        "mu": ((0.2, 0.5, 1.0, 1.5, 2.0), paper.figure_mus),
    }


def _study() -> Found:
    paper = STUDIES["paper"]
    return {
        "trials": (50, paper.trials),
        "folds": (4, paper.folds),
        "repetitions": (10, paper.repetitions),
    }


def _mlrc_dims() -> Found:
    dim = mlrc("cub200").dim
    assert dim is not None
    return {"separated": (128, dim), "concatenated": (512, dim * STUDIES["paper"].folds)}


def _mlrc_crops(e: Evidence) -> Verdict:
    train, test = MLRC.train, MLRC.test
    assert isinstance(train, RandomResizedCrop)
    assert isinstance(test, CenterCrop)
    assert train.resize is not None
    least, most = (round(train.resize * sqrt(share)) for share in train.scale)
    right = (least, most, train.resize, train.size, train.flip, test.resize, test.size) == (
        40, 256, 256, 227, 0.5, 256, 227
    )  # fmt: skip
    told = (
        f"square crops of {least} to {most} pixels, {train.scale[0]:g} to {train.scale[1]:g} of "
        f"the area as in the reference harness, where {train.scale[0]:g} x 256 is "
        f"{train.scale[0] * 256:.0f}; ratios {train.ratio[0]:.2f} to {train.ratio[1]:.2f}, then "
        f"{train.size}, flip {train.flip:g}; test {test.resize} to {test.size}"
    )
    return held(right and train.ratio == (3 / 4, 4 / 3), told)


def _claim(sentence: str, find: Callable[[], Found], where: str = "section C.2") -> Claim:
    return Claim(sentence, where, HOLDS, partial(_same, find), trained=False, printed=False)


HOLDS = "the scale `paper` trains so"

SETTINGS = (
    _claim(
        "The size of the cropped images is 224 x 224",
        lambda: _each("image_size", dict.fromkeys(RETRIEVAL, 224)),
    ),
    _claim(
        "we set the embedding feature's output dimension to 512",
        lambda: _each("dim", dict.fromkeys(RETRIEVAL, 512)),
    ),
    _claim(
        "We set the learning rate of 10^-4 for CUB200 and CARS196, and 10^-3 for SOP and In-Shop "
        "using the Adam optimizer and a batch size of 128",
        _rates,
    ),
    _claim(
        "The learning rate is decayed by a factor of 0.1 at the 50th epoch for CARS196, 60th epoch "
        "for In-Shop, and 20th epoch for CUB200 and SOP",
        _decays,
    ),
    _claim(
        "We use alpha = 0.4 and mu = 1.0 for Proxy Synthesis in every experiment, except that we "
        "search for the best values in the experiment of comparison with state-of-the-art",
        _synthesis,
    ),
    _claim(
        "For Proxy-anchor loss, we follow the experimental setting of (Kim et al. 2020), which "
        "includes batch size of 180, AdamW optimizer, parameter warm-up, and combination of "
        "average and max pooling layers",
        _anchor,
    ),
    _claim(
        "gamma = 30.0, m1 = 1.05 [...] is used for SphereFace, gamma = 23.0 [...] m3 = 0.1 [...] "
        "for CosFace, and gamma = 23.0 [...] m2 = 0.1 [...] for ArcFace",
        _margins,
    ),
    _claim(
        "varying the values of alpha in {0.2, 0.4, 0.8, 1.0, 1.5, 2.0} and mu in {0.2, 0.5, 1.0, "
        "1.5, 2.0}",
        _grid,
        "section D.2, Figure A",
    ),
    _claim(
        "Heatmap visualization of cosine similarity (logit) between embeddings and proxies at "
        "100th epoch of training on CARS196",
        lambda: {"epochs when it is drawn": (100, conventional("cars196").epochs)},
        "section 4.3, Figure 4",
    ),
    Claim(
        "resize each image to make its shorter side has length 256, then perform a random crop to "
        "have a size between 40 and 256, and aspect ratio between 3/4 and 4/3. This image is then "
        "resized to 227 x 227 and flipped horizontally with a 50% probability. [In the test] "
        "resized 256 and then center cropped to 227",
        "section C.2, MLRC",
        HOLDS,
        _mlrc_crops,
        trained=False,
        printed=False,
    ),
    _claim(
        "All networks are trained with a batch size of 32, RMSprop optimizer, and learning rate of "
        "10^-6",
        lambda: _of(mlrc("cub200"), batch_size=32, optimizer="rmsprop", lr=1e-6),
        "section C.2, MLRC",
    ),
    _claim(
        "we conduct 50 experiments of hyper-parameter search where each experiment consists of "
        "4-fold cross-validation. We perform 10 training using the best hyper-parameters",
        _study,
        "section C.2, MLRC",
    ),
    _claim(
        "We report separated (128-dim) and concatenated (512-dim) accuracy, which is concatenated "
        "and l2-normalized of 128-dim embeddings of the 4 models",
        _mlrc_dims,
        "section C.2, MLRC",
    ),
)
