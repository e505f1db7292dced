"""Claims about deformed pictures and embeddings."""

from __future__ import annotations

from functools import partial
from statistics import fmean

from proxysynth.paper.claims.claim import Claim, Evidence, Verdict, held, listed

ALMOST_TWICE = 1.8
NAMES = (
    "cutout", "dropout", "zoom in", "zoom out", "rotation", "shearing", "gaussian noise",
    "gaussian blur",
)  # fmt: skip


def _pictures(e: Evidence) -> Verdict:
    gains = {
        name: e.value("table3", name, "proxy_synthesis") - e.value("table3", name, "none")
        for name in NAMES
    }
    support = e.supported("table3", [(name, "proxy_synthesis") for name in NAMES])
    return held(min(gains.values()) > 0, listed(gains, sign=True) + support)


def _curve(e: Evidence, loss: str, part: str, regularizer: str) -> dict[str, float]:
    column = f"{loss} {part} {regularizer}"
    return {lam: e.value("tableB", lam, column) for lam in e.rows("tableB")}


def _twice(loss: str, e: Evidence) -> Verdict:
    ratios = {}
    for part in ("train", "test"):
        plain = fmean(_curve(e, loss, part, "none").values())
        ours = fmean(_curve(e, loss, part, "proxy_synthesis").values())
        ratios[part] = ours / plain if plain else float("inf")
    return held(min(ratios.values()) >= ALMOST_TWICE, listed(ratios, 2) + " times")


def _peak(e: Evidence) -> Verdict:
    peaks, right = {}, True
    for part in ("train", "test"):
        for regularizer in ("none", "proxy_synthesis"):
            curve = _curve(e, "norm_softmax", part, regularizer)
            best = max(curve, key=curve.__getitem__)
            peaks[f"{part}, {'plain' if regularizer == 'none' else 'PS'}"] = best
            ends = (curve["0.10"] + curve["0.95"]) / 2
            right = right and best == "0.50" and ends < curve["0.50"]
    return held(right, "peak at " + ", ".join(f"{lam} ({name})" for name, lam in peaks.items()))


ROBUSTNESS = (
    Claim(
        "the network trained using Proxy Synthesis demonstrates significantly improved performance "
        "to input deformations",
        "section 4.4, Table 3",
        "R@1 is higher with Proxy Synthesis under each of the eight deformations",
        _pictures,
    ),
    Claim(
        "a network trained with Proxy Synthesis performs almost twice as well when compared with "
        "Norm-softmax loss on both the train and test set",
        "section 4.4, Figure 5 and Table B",
        f"its mean over the 18 lam is at least {ALMOST_TWICE:g} times as high on both",
        partial(_twice, "norm_softmax"),
    ),
    Claim(
        "When lambda is close to 0 and 1, the performance is low because of hard synthetics, and "
        "when lambda is close to 0.5, the performance is high",
        "section 4.4, Figure 5 and Table B",
        "all four curves of Norm-softmax peak at 0.50 and are lower at their ends",
        _peak,
    ),
    Claim(
        "We conduct the same experiments with Proxy-NCA loss [...]. For both loss functions, Proxy "
        "Synthesis shows significant performance gain with a similar performance pattern",
        "section D.3, Table B",
        f"with Proxy-NCA too its mean is at least {ALMOST_TWICE:g} times as high on both",
        partial(_twice, "proxy_nca"),
    ),
)
