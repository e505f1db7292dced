"""Tables 1 and 2: which parts of Proxy Synthesis matter, and how lam is drawn."""

from __future__ import annotations

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Artifact, Cell, Column, Line, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import column, flat, measured, ran_on, seeded
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.run import Run

ON = "cars196"
MODELS = {
    "M1": ("original", "original"),
    "M2": ("synthetic", "synthetic"),
    "M3": ("original", "both"),
    "M4": ("synthetic", "both"),
    "PS": ("both", "both"),
}
"""Which embeddings and proxies take part.                                             [Table 1]"""
WORDS = {"M1": "M1 (baseline)", "PS": "Proxy Synthesis"}
LAMS = (0.1, 0.2, 0.3, 0.4, 0.5)
ALPHAS = (0.2, 0.4, 0.8, 1.0, 1.5)


def _models(scale: Scale) -> dict[str, tuple[Run, ...]]:
    made = {}
    for name, (embeddings, proxies) in MODELS.items():
        loss = NormSoftmax() if name == "M1" else ProxySynthesis(
            NormSoftmax(), embeddings=embeddings, proxies=proxies  # type: ignore[arg-type]
        )  # fmt: skip
        made[name] = seeded(scale, ON, loss)
    return made


def _table1(scale: Scale, store: Store) -> Table:
    runs, rows = _models(scale), []
    for name, parts in MODELS.items():
        cells = []
        for metric in ("recall@1", "map@r"):
            printed, base = metric == "recall@1", name != "M1"
            cells.append(
                Cell(
                    measured(store, runs[name], metric),
                    number("table1", model=name) if printed else None,
                    baseline=measured(store, runs["M1"], metric) if base else (),
                    paper_baseline=number("table1", model="M1") if printed and base else None,
                )
            )
        words = [{"both": "original, synthetic"}.get(part, part) for part in parts]
        rows.append(Line((WORDS.get(name, name), *words), tuple(cells)))
    return Table(
        "Table 1",
        "Recall@1 (%) with original and synthetic embeddings and proxies in Norm-softmax.",
        ("model", "embeddings", "proxies"),
        (column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R")),
        tuple(rows),
        (*ran_on(scale, ON), "Differences are against M1, the plain loss."),
    )


def _static(scale: Scale, lam: float) -> tuple[Run, ...]:
    return seeded(scale, ON, ProxySynthesis(NormSoftmax(), lam=lam))


def _stochastic(scale: Scale, alpha: float) -> tuple[Run, ...]:
    return seeded(scale, ON, ProxySynthesis(NormSoftmax(), alpha=alpha))


def _table2(scale: Scale, store: Store) -> Table:
    plain, rows = seeded(scale, ON, NormSoftmax()), []
    paper_plain = number("table1", model="M1")
    groups = [("static lam", "lam", x, _static(scale, x)) for x in LAMS]
    groups += [("drawn, alpha", "alpha", x, _stochastic(scale, x)) for x in ALPHAS]
    for words, kind, value, runs in groups:
        printed = number("table2", generation=kind, parameter=str(value))
        cells = (
            Cell(
                measured(store, runs),
                printed,
                baseline=measured(store, plain),
                paper_baseline=paper_plain,
            ),
            Cell(measured(store, runs, "map@r"), baseline=measured(store, plain, "map@r")),
        )
        rows.append(Line((words, f"{value:g}"), cells))
    return Table(
        "Table 2",
        "Recall@1 (%) of PS + Norm-softmax with a fixed lam and with lam drawn from "
        "Beta(alpha, alpha).",
        ("generation", "value"),
        (column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R")),
        tuple(rows),
        (*ran_on(scale, ON), "Differences are against plain Norm-softmax, M1 of Table 1."),
    )


TABLES = (
    Artifact(
        "table1",
        "original and synthetic embeddings and proxies (M1 to M4)",
        lambda scale: flat(_models(scale).values()),
        _table1,
    ),
    Artifact(
        "table2",
        "static and stochastic generation",
        lambda scale: flat(
            [seeded(scale, ON, NormSoftmax())]
            + [_static(scale, lam) for lam in LAMS]
            + [_stochastic(scale, alpha) for alpha in ALPHAS]
        ),
        _table2,
    ),
)
