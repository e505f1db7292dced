"""Rules that are asked of the code: each fails where the code does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from proxysynth.data.deformations import (
    DEFORMATIONS,
    Cutout,
    Dropout,
    GaussianBlur,
    GaussianNoise,
    Rotation,
    Shearing,
    Zoom,
)
from proxysynth.losses import CosFace, NormSoftmax, Softmax
from proxysynth.losses.margin_softmax import MarginSoftmax
from proxysynth.paper.claims import (
    CLAIMS,
    data_claims,
    deformation_claims,
    gradient_claims,
    method_claims,
    setting_claims,
)
from proxysynth.paper.claims.claim import Evidence, Status
from proxysynth.regularizers import ProxySynthesis, VirtualSoftmax


def _status(words: str) -> Status:
    (claim,) = [c for c in CLAIMS if words in c.sentence and not c.trained]
    return claim.rule(Evidence({}, "ours")).status


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("cutout", Cutout(side=0.3), "two grayish"),
        ("cutout", Cutout(squares=1), "two grayish"),
        ("cutout", Cutout(grey=255), "two grayish"),
        ("dropout", Dropout(0.3), "0 <= p <= 0.2"),
        ("dropout", Dropout(0.1), "0 <= p <= 0.2"),
        ("zoom_in", Zoom(0.6), "50% and 150%"),
        ("zoom_out", Zoom(1.5, opposite=True), "50% and 150%"),
        ("rotation", Rotation(20.0), "-30°"),
        ("shearing", Shearing(40.0), "-30°"),
        ("gaussian_noise", GaussianNoise(0.3 * 255), "0.2 x 255"),
        ("gaussian_blur", GaussianBlur(2.5), "sigma of 3.0"),
    ],
)
def test_deformations(name: str, other: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _status(words) == "holds"
    monkeypatch.setattr(deformation_claims, "DEFORMATIONS", {**DEFORMATIONS, name: other})
    assert _status(words) == "fails"


@pytest.mark.parametrize(
    ("name", "words"),
    [("cub200", "5,864"), ("cars196", "8,054"), ("sop", "59,551"), ("inshop", "25,882")],
)
def test_counts(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _status(words) == "holds"
    entry = data_claims.CATALOGUE[name]
    fewer = replace(entry, classes={**entry.classes, "train": entry.classes["train"] - 1})
    monkeypatch.setitem(data_claims.CATALOGUE, name, fewer)
    assert _status(words) == "fails"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_size": 227}, "224 x 224"),
        ({"dim": 128}, "output dimension to 512"),
        ({"lr": 2e-4}, "learning rate of 10^-4"),
        ({"batch_size": 64}, "learning rate of 10^-4"),
        ({"decay_epochs": (30,)}, "decayed by a factor"),
        ({"decay": 0.5}, "decayed by a factor"),
        ({"loss": ProxySynthesis(NormSoftmax(), alpha=1.0)}, "mu = 1.0 for Proxy Synthesis"),
        ({"warmup_epochs": 0}, "batch size of 180"),
        ({"loss": CosFace(m3=0.2)}, "m1 = 1.05"),
    ],
)
def test_settings(change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _status(words) == "holds"
    made: Callable[..., Any] = setting_claims.conventional
    monkeypatch.setattr(setting_claims, "conventional", lambda *a: replace(made(*a), **change))
    assert _status(words) == "fails"


@pytest.mark.parametrize(
    ("change", "words"),
    [({"lr": 1e-5}, "RMSprop"), ({"dim": 64}, "separated (128-dim)")],
)
def test_settings_of_mlrc(
    change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _status(words) == "holds"
    made: Callable[..., Any] = setting_claims.mlrc
    monkeypatch.setattr(setting_claims, "mlrc", lambda *a: replace(made(*a), **change))
    assert _status(words) == "fails"


def test_the_crop_as_printed_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from proxysynth.data.protocol_transforms import MLRC_AS_PRINTED

    assert _status("between 40 and 256") == "fails"
    monkeypatch.setattr(setting_claims, "MLRC", MLRC_AS_PRINTED)
    assert _status("between 40 and 256") == "holds"


class _Biased:
    """Softmax with a bias."""

    def similarity(self, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return x @ p.T + 0.1

    def __call__(self, x: torch.Tensor, y: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return Softmax().from_similarity(self.similarity(x, p) * (1 + x[:, :1] ** 2), y)


@pytest.mark.parametrize(
    ("module", "name", "other", "words"),
    [
        (method_claims, "VirtualSoftmax", partial(VirtualSoftmax, clip=20.0), "under 10"),
        (method_claims, "VirtualSoftmax", lambda loss, clip=2.0: VirtualSoftmax(Softmax(), 2.0),
         "much bigger"),
        (method_claims, "_refused", lambda: False, "constant 1"),
        (method_claims, "ProxySynthesis", lambda loss, mu=1.0: ProxySynthesis(loss, mu=mu / 2),
         "mu x batch size generations"),
        (method_claims, "_lams", lambda alpha: torch.full((100,), 0.5), "with small alpha"),
        (method_claims, "_lams", lambda alpha: torch.full((100,), 0.1), "alpha = 1.0 is the same"),
        (method_claims, "_lams", lambda alpha: torch.linspace(0, 1.1, 9), "lambda in [0, 1]"),
        (method_claims, "ProxySynthesis", lambda loss: ProxySynthesis(loss, mu=0.0),
         "limited by generating one"),
        (gradient_claims, "MarginSoftmax", lambda **margins: MarginSoftmax(m3=0.1), "m3 = 0.0"),
        (gradient_claims, "Softmax", _Biased, "bias b = 0"),
        (gradient_claims, "NormSoftmax", Softmax, "by l2-normalization"),
        (gradient_claims, "Softmax", _Biased, "tau_i < 0"),
        (gradient_claims, "_gradient", lambda x, p, lam, rows: x[0], "consider class relation"),
        (gradient_claims, "_gradient", lambda x, p, lam, rows: p[1] - p[0], "tau'_i > 0"),
    ],
)  # fmt: skip
def test_closed_forms(
    module: Any, name: str, other: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _status(words) == "holds"
    monkeypatch.setattr(module, name, other)
    assert _status(words) == "fails"


def test_a_matrix_of_n_x_n_needs_as_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _status("N x N similarity matrix") == "fails"
    monkeypatch.setattr(method_claims, "C", method_claims.N)
    assert _status("N x N similarity matrix") == "holds"
