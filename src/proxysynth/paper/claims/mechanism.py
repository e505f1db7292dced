"""Claims about how Proxy Synthesis works: Figures 2 to 5 and A to D, Tables 1, 2, 3 and B."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from statistics import fmean

from proxysynth.paper.claims.claim import (
    EQUAL,
    Claim,
    Evidence,
    Finding,
    Missing,
    NotTestable,
    listed,
    titled,
)

PLAIN, MIXED = "Norm-softmax", "PS + Norm-softmax"

Rows = dict[str, str]
"""The keys of a table's rows by the names that readers see."""


def _values(e: Evidence, table: str, column: str, rows: Rows) -> dict[str, float]:
    return {name: e.value(table, row, column) for name, row in rows.items()}


def _above(
    table: str, column: str, rows: Rows, pairs: tuple[tuple[str, str], ...], e: Evidence
) -> Finding:
    """Whether the first of each pair of rows is above the second."""
    found = _values(e, table, column, rows)
    margins = {f"{a} above {b}": found[a] - found[b] for a, b in pairs}
    if table.startswith("figure"):
        return Finding(margins, listed(found, 2))
    support = e.supported(table, [(row, column) for name, row in rows.items() if name != "M1"])
    return Finding(margins, listed(found) + support)


def _lower(columns: tuple[str, ...], what: str, e: Evidence) -> Finding:
    """Whether a number of the toy is lower with Proxy Synthesis."""
    margins, texts = {}, []
    for column in columns:
        plain, mixed = (e.value("figure2", method, column) for method in (PLAIN, MIXED))
        margins[e.named("figure2", column)] = plain - mixed
        texts.append(f"{e.named('figure2', column)} {plain:.3f} without, {mixed:.3f} with")
    return Finding(margins, f"{what}: {'; '.join(texts)}")


# Figures


def _in_between(figures: tuple[str, ...], part: str, e: Evidence) -> Finding:
    """Cosine to the second nearest proxy over that to the nearest: 0 in a cluster, 1 halfway."""
    margins, texts = {}, []
    for figure in figures:
        seen, other = (e.value(figure, name, "between") for name in ("seen", part))
        margins[titled(figure)] = other - seen
        texts.append(f"{titled(figure)}: seen {seen:.2f}, {part} {other:.2f}")
    return Finding(margins, "; ".join(texts))


DIAGONALS = {name: name for name in ("D0", "D1", "D2", "D3", "D4")}


def _many_classes(e: Evidence) -> Finding:
    margins, texts = {}, []
    for part in ("seen", "unseen"):
        count, least, most = (e.value("figureC", part, key) for key in ("classes", "least", "most"))
        if least <= 10:
            raise NotTestable(f"the {part} classes here have {least:.0f} images")
        margins[f"{part} classes"] = 0.5 - abs(count - 100)
        margins[f"{part} images"] = least - 10
        texts.append(f"{count:.0f} {part} classes with {least:.0f} to {most:.0f} images shown")
    return Finding(margins, "; ".join(texts))


def _over_epochs(e: Evidence) -> Finding:
    found = {epoch: e.value("figureD", epoch, "map@r") for epoch in e.rows("figureD")}
    if len(found) < 2:
        raise Missing("Figure D")
    margins = {f"{a} to {b}": found[b] - found[a] for a, b in pairwise(found)}
    return Finding(margins, f"MAP@R of unseen classes: {listed(found)}")


FIGURES = (
    Claim(
        "For both the input and embedding spaces, Norm-softmax has a strict decision boundary, "
        "whereas PS + Norm-softmax has a smooth decision boundary",
        "section 3.3, Figure 2",
        "between the two classes the larger confidence is on average lower with Proxy Synthesis, "
        "in both spaces",
        partial(_lower, ("inputs", "embeddings"), "mean confidence"),
        scaled=False,
        printed=False,
    ),
    Claim(
        "a smooth decision boundary that transitions linearly from the red to the blue class",
        "section 3.3, Figure 2",
        "on the way from red to blue the confidence in blue is nearer to a straight line with "
        "Proxy Synthesis, in both spaces",
        partial(_lower, ("input_bend", "embedding_bend"), "mean distance"),
        scaled=False,
        printed=False,
    ),
    Claim(
        "Synthetic classes work as hard competitors of original classes because of positional "
        "proximity, which leads to lower prediction confidence",
        "section 3.3, Figure 2",
        "the toy is less confident on the unseen class with Proxy Synthesis",
        partial(_lower, ("unseen",), "mean confidence"),
        scaled=False,
        printed=False,
    ),
    *(
        Claim(
            "the logit values of ground truth (GT), which are represented by the main diagonal D0, "
            "are clearly red [...]. On the other hand, the GT logit values of PS + Norm-softmax "
            "(D1 and D4) have lower confidence",
            "section 4.3, Figure 4",
            f"the mean {what} on D1 and on D4 is below that on D0",
            partial(_above, "figure4", column, DIAGONALS, (("D0", "D1"), ("D0", "D4"))),
            printed=False,
        )
        for column, what in (("mean", "cosine"), ("softmax", "softmax confidence"))
    ),
    *(
        Claim(
            "the confidence of main diagonals (D1 and D4) is still higher than that of "
            "competitors' diagonals (D2 and D3) [...] for the same embedding",
            "section 4.3, Figure 4",
            f"the mean {what} on D1 is above that on D2, and D4 above D3",
            partial(_above, "figure4", column, DIAGONALS, (("D1", "D2"), ("D4", "D3"))),
            printed=False,
        )
        for column, what in (("mean", "cosine"), ("softmax", "softmax confidence"))
    ),
    Claim(
        "unseen test embeddings are located in-between the clusters of train embeddings",
        "section 4.3, Figure 3; section D.5, Figures B and C",
        "cosine to the second nearest seen proxy over cosine to the nearest (0 in a cluster, 1 "
        "halfway between two): higher for unseen than for seen embeddings, in all three figures",
        partial(_in_between, ("figure3", "figureB", "figureC"), "unseen"),
        printed=False,
    ),
    Claim(
        "synthetic classes are also generated in-between train embeddings [...] and play an "
        "important role in mimicking unseen classes",
        "section 4.3, Figure 3",
        "the same number is higher for synthetic than for seen embeddings",
        partial(_in_between, ("figure3",), "synthetic"),
        printed=False,
    ),
    Claim(
        "As the number of classes is large [...] in SOP, we sample 100 classes with more than 10 "
        "instances per class",
        "section D.5, Figure C",
        "100 seen and 100 unseen classes are shown, each with more than 10 images",
        _many_classes,
        exact=True,
        printed=False,
    ),
    Claim(
        "At the beginning of training [2nd epoch] all embeddings are scattered [...]. At 30 epochs "
        "[...] start forming clusters [...] more discriminative [...] at the 60th epoch [...]. "
        "Finally, [...] well-clustered train and test embeddings at the 150th epoch",
        "section D.5, Figure D",
        "MAP@R of the unseen classes rises from each of the four epochs to the next; a shorter "
        "training is examined after a few steps and at three epochs",
        _over_epochs,
        printed=False,
    ),
)

# Tables 1 and 2, Figure A

MODELS = {
    "M1": "M1 (baseline) original original",
    "M2": "M2 synthetic synthetic",
    "M3": "M3 original original, synthetic",
    "M4": "M4 synthetic original, synthetic",
    "PS": "Proxy Synthesis original, synthetic original, synthetic",
}
LAMS = ("0.1", "0.2", "0.3", "0.4", "0.5")
ALPHAS = ("0.2", "0.4", "0.8", "1", "1.5")


STATIC = {f"lam {x}": f"static lam {x}" for x in LAMS}
DRAWN = {f"alpha {x}": f"drawn, alpha {x}" for x in ALPHAS}


def _static(e: Evidence) -> dict[str, float]:
    return _values(e, "table2", "R@1", STATIC)


def _drawn(e: Evidence) -> dict[str, float]:
    return _values(e, "table2", "R@1", DRAWN)


def _best_among(found: dict[str, float], allowed: tuple[str, ...]) -> Finding:
    """Whether the best of all is one of these."""
    inside = max(found[name] for name in allowed)
    outside = max(value for name, value in found.items() if name not in allowed)
    best = max(found, key=found.__getitem__)
    margins = {f"{', '.join(allowed)} above the others": inside - outside}
    return Finding(margins, f"best {best}: {listed(found)}")


def _ends_low(e: Evidence) -> Finding:
    found = _static(e)
    middle = max(found[f"lam {x}"] for x in ("0.2", "0.3", "0.4"))
    margins = {f"{name} below": middle - found[name] for name in ("lam 0.1", "lam 0.5")}
    return Finding(margins, listed(found))


def _drawn_better(e: Evidence) -> Finding:
    best, other = max(_drawn(e).values()), max(_static(e).values())
    return Finding({"drawn above static": best - other}, f"drawn {best:.1f}, static {other:.1f}")


def _grid(e: Evidence) -> dict[tuple[str, str], float]:
    """Recall@1 over alpha and mu."""
    rows = e.rows("figureA")
    columns = [head.key for head in e.tables["figureA"].columns]
    return {(a, m): e.value("figureA", a, m) for a in rows for m in columns}


def _small_alphas(e: Evidence) -> Finding:
    found = _grid(e)
    small = [v for (alpha, _), v in found.items() if float(alpha) <= 0.8]
    large = [v for (alpha, _), v in found.items() if float(alpha) > 0.8]
    if not large:
        raise Missing("Figure A, alpha above 0.8")
    text = f"mean {fmean(small):.1f} for alpha up to 0.8, {fmean(large):.1f} above"
    return Finding({"small above large alpha": fmean(small) - fmean(large)}, text)


def _mu_one(e: Evidence) -> Finding:
    found = _grid(e)
    mus = {f"mu {mu}": fmean(v for (_, m), v in found.items() if m == mu) for _, mu in found}
    if len(mus) < 3:
        raise Missing("Figure A, more than two mu")
    return _best_among(mus, tuple(m for m in mus if 0.5 <= float(m.removeprefix("mu ")) <= 1.5))


def _of(*names: str) -> Rows:
    return {name: MODELS[name] for name in names}


ABLATIONS = (
    Claim(
        "using only synthetic embeddings and proxies (M2) leads to a slightly lower performance "
        "than the baseline (M1)",
        "section 4.2, Table 1",
        "R@1 of M2 is below M1",
        partial(_above, "table1", "R@1", _of("M1", "M2"), (("M1", "M2"),)),
    ),
    Claim(
        "Adding synthetic proxies (M3) and using synthetic embedding instead of the original "
        "embedding (M4) leads to improved performance when compared with the baseline (M1)",
        "section 4.2, Table 1",
        "R@1 of M3 and of M4 is above M1",
        partial(_above, "table1", "R@1", _of("M1", "M3", "M4"), (("M3", "M1"), ("M4", "M1"))),
    ),
    Claim(
        "using all embeddings and proxies (Proxy Synthesis) achieves the best performance among "
        "all cases",
        "section 4.2, Table 1",
        "Proxy Synthesis has the largest R@1 of the five",
        partial(
            _above, "table1", "R@1", MODELS, tuple(("PS", m) for m in _of("M1", "M2", "M3", "M4"))
        ),
    ),
    Claim(
        "static lambda = 0.1 shows low performance [...] and static lambda = 0.5 also shows low "
        "performance",
        "section 4.3, Table 2",
        "both are below the best of 0.2, 0.3, 0.4",
        _ends_low,
    ),
    Claim(
        "The optimal static lambda value is around 0.2",
        "section 4.3, Table 2",
        "the best of the five is 0.1, 0.2 or 0.3",
        lambda e: _best_among(_static(e), ("lam 0.1", "lam 0.2", "lam 0.3")),
    ),
    Claim(
        "the stochastic generation is better than the static generation",
        "section 4.3, Table 2",
        "the best drawn setting is above the best static one",
        _drawn_better,
    ),
    Claim(
        "alpha around 0.4 shows the best performance",
        "section 4.3, Table 2",
        "the best of the five is 0.2, 0.4 or 0.8",
        lambda e: _best_among(_drawn(e), ("alpha 0.2", "alpha 0.4", "alpha 0.8")),
    ),
    Claim(
        "alpha = 1.0 is the same with uniform distribution, and alpha = 1.5 has a high chance of "
        "generating synthetics in the middle of two classes; thus, their performance is relatively "
        "low",
        "section 4.3, Table 2",
        "both are below alpha 0.4",
        partial(
            _above, "table2", "R@1", DRAWN, (("alpha 0.4", "alpha 1"), ("alpha 0.4", "alpha 1.5"))
        ),
    ),
    Claim(
        "For alpha in the interpolation function, smaller values (0.2 to 0.8) show relatively good "
        "performance",
        "section D.2, Figure A",
        "their mean R@1 over all mu is above that of the larger ones",
        _small_alphas,
        printed=False,
    ),
    Claim(
        "when the generation ratio mu is around 1.0, the performance is high",
        "section D.2, Figure A",
        "the mu with the best mean R@1 over all alpha is 0.5, 1.0 or 1.5",
        _mu_one,
        printed=False,
    ),
)

# Tables 3 and B, Figure 5

ALMOST_TWICE = 1.8
DEFORMED = (
    "cutout", "dropout", "zoom in", "zoom out", "rotation", "shearing", "gaussian noise",
    "gaussian blur",
)  # fmt: skip


def _deformed_images(e: Evidence) -> Finding:
    gains = {
        name: e.value("table3", name, "proxy_synthesis") - e.value("table3", name, "none")
        for name in DEFORMED
    }
    support = e.supported("table3", [(name, "proxy_synthesis") for name in DEFORMED])
    return Finding(gains, listed(gains, sign=True) + support)


def _curve(e: Evidence, loss: str, part: str, regularizer: str) -> dict[str, float]:
    column = f"{loss} {part} {regularizer}"
    return {lam: e.value("tableB", lam, column) for lam in e.rows("tableB")}


def _twice(loss: str, e: Evidence) -> Finding:
    ratios = {}
    for part, name in (("train", "seen classes"), ("test", "unseen classes")):
        plain = fmean(_curve(e, loss, part, "none").values())
        e.need_room(plain, (ALMOST_TWICE - 1) * plain, f"the mean of Table B on {name}")
        mixed = fmean(_curve(e, loss, part, "proxy_synthesis").values())
        ratios[name] = mixed / plain if plain else float("inf")
    margins = {name: ratio - ALMOST_TWICE + EQUAL for name, ratio in ratios.items()}
    return Finding(margins, listed(ratios, 2) + " times")


def _peak(e: Evidence) -> Finding:
    peaks, margins = {}, {}
    for part in ("train", "test"):
        for regularizer, name in (("none", f"{part}, plain"), ("proxy_synthesis", f"{part}, PS")):
            curve = _curve(e, "norm_softmax", part, regularizer)
            peaks[name] = max(curve, key=curve.__getitem__)
            before = max(value for lam, value in curve.items() if float(lam) < 0.5)
            after = max(value for lam, value in curve.items() if float(lam) > 0.5)
            margins[f"{name}: 0.50 above smaller lam"] = curve["0.50"] - before
            margins[f"{name}: 0.50 not below larger lam"] = curve["0.50"] - after + EQUAL
            ends = (curve["0.10"] + curve["0.95"]) / 2
            margins[f"{name}: 0.50 above the ends"] = curve["0.50"] - ends
    return Finding(
        margins, "peak at " + ", ".join(f"{lam} ({name})" for name, lam in peaks.items())
    )


ROBUSTNESS = (
    Claim(
        "the network trained using Proxy Synthesis demonstrates significantly improved performance "
        "to input deformations",
        "section 4.4, Table 3",
        "R@1 is higher with Proxy Synthesis under each of the eight deformations",
        _deformed_images,
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

MECHANISM = (*FIGURES, *ABLATIONS, *ROBUSTNESS)
