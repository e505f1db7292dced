"""Claims about the parts of Proxy Synthesis and its hyper-parameters."""

from __future__ import annotations

from statistics import fmean

from proxysynth.paper.claims.claim import Claim, Evidence, Missing, Verdict, held, listed

MODELS = {
    "M1": "M1 (baseline) original original",
    "M2": "M2 synthetic synthetic",
    "M3": "M3 original original, synthetic",
    "M4": "M4 synthetic original, synthetic",
    "PS": "Proxy Synthesis original, synthetic original, synthetic",
}
LAMS = ("0.1", "0.2", "0.3", "0.4", "0.5")
ALPHAS = ("0.2", "0.4", "0.8", "1", "1.5")


def _models(e: Evidence) -> dict[str, float]:
    return {name: e.value("table1", row, "R@1") for name, row in MODELS.items()}


def _static(e: Evidence) -> dict[str, float]:
    return {f"lam {x}": e.value("table2", f"static lam {x}", "R@1") for x in LAMS}


def _drawn(e: Evidence) -> dict[str, float]:
    return {f"alpha {x}": e.value("table2", f"drawn, alpha {x}", "R@1") for x in ALPHAS}


def _told(e: Evidence, found: dict[str, float], names: tuple[str, ...]) -> str:
    support = e.supported("table1", [(MODELS[name], "R@1") for name in names if name != "M1"])
    return listed({name: found[name] for name in names}) + support


def _only_synthetic(e: Evidence) -> Verdict:
    found = _models(e)
    return held(found["M2"] < found["M1"], _told(e, found, ("M1", "M2")))


def _m3_m4(e: Evidence) -> Verdict:
    found = _models(e)
    right = min(found["M3"], found["M4"]) > found["M1"]
    return held(right, _told(e, found, ("M1", "M3", "M4")))


def _all_best(e: Evidence) -> Verdict:
    found = _models(e)
    return held(max(found, key=found.__getitem__) == "PS", _told(e, found, tuple(MODELS)))


def _ends_low(e: Evidence) -> Verdict:
    found = _static(e)
    middle = max(found[f"lam {x}"] for x in ("0.2", "0.3", "0.4"))
    return held(max(found["lam 0.1"], found["lam 0.5"]) < middle, listed(found))


def _best_static(e: Evidence) -> Verdict:
    found = _static(e)
    best = max(found, key=found.__getitem__)
    return held(best in ("lam 0.1", "lam 0.2", "lam 0.3"), f"best {best}: {listed(found)}")


def _drawn_better(e: Evidence) -> Verdict:
    static, drawn = _static(e), _drawn(e)
    best, other = max(drawn.values()), max(static.values())
    return held(best > other, f"best drawn {best:.1f}, best static {other:.1f}")


def _best_alpha(e: Evidence) -> Verdict:
    found = _drawn(e)
    best = max(found, key=found.__getitem__)
    return held(best in ("alpha 0.2", "alpha 0.4", "alpha 0.8"), f"best {best}: {listed(found)}")


def _large_alpha_low(e: Evidence) -> Verdict:
    found = _drawn(e)
    right = max(found["alpha 1"], found["alpha 1.5"]) < found["alpha 0.4"]
    return held(right, listed(found))


def _grid(e: Evidence) -> dict[tuple[str, str], float]:
    table = e.tables.get("figureA")
    if table is None:
        raise Missing("Figure A")
    return {
        (row.key, head.key): e.value("figureA", row.key, head.key)
        for row in table.rows
        for head in table.columns
    }


def _small_alphas(e: Evidence) -> Verdict:
    found = _grid(e)
    small = [v for (alpha, _), v in found.items() if float(alpha) <= 0.8]
    large = [v for (alpha, _), v in found.items() if float(alpha) > 0.8]
    if not large:
        raise Missing("Figure A, alpha above 0.8")
    told = f"mean {fmean(small):.1f} for alpha to 0.8, {fmean(large):.1f} above"
    return held(fmean(small) > fmean(large), told)


def _mu_one(e: Evidence) -> Verdict:
    found = _grid(e)
    mus = {mu: fmean(v for (_, m), v in found.items() if m == mu) for _, mu in found}
    if len(mus) < 3:
        raise Missing("Figure A, more than two mu")
    best = max(mus, key=mus.__getitem__)
    return held(0.5 <= float(best) <= 1.5, f"best mu {best}: means {listed(mus)}")


ABLATIONS = (
    Claim(
        "using only synthetic embeddings and proxies (M2) leads to a slightly lower performance "
        "than the baseline (M1)",
        "section 4.2, Table 1",
        "R@1 of M2 is below M1",
        _only_synthetic,
    ),
    Claim(
        "Adding synthetic proxies (M3) and using synthetic embedding instead of the original "
        "embedding (M4) leads to improved performance when compared with the baseline (M1)",
        "section 4.2, Table 1",
        "R@1 of M3 and of M4 is above M1",
        _m3_m4,
    ),
    Claim(
        "using all embeddings and proxies (Proxy Synthesis) achieves the best performance among "
        "all cases",
        "section 4.2, Table 1",
        "Proxy Synthesis has the largest R@1 of the five",
        _all_best,
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
        _best_static,
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
        _best_alpha,
    ),
    Claim(
        "alpha = 1.0 is the same with uniform distribution, and alpha = 1.5 has a high chance of "
        "generating synthetics in the middle of two classes; thus, their performance is relatively "
        "low",
        "section 4.3, Table 2",
        "both are below alpha 0.4",
        _large_alpha_low,
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
