"""The claims of `claims.toml`, and their rules: each reads numbers and returns margins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from proxysynth.losses import LOSSES
from proxysynth.paper.claims.claim import (
    Checked,
    Claim,
    Evidence,
    Finding,
    Keys,
    Missing,
    NotTestable,
    listed,
    titled,
)
from proxysynth.paper.printed import notes_of
from proxysynth.paper.scale import RETRIEVAL
from proxysynth.paper.tables.cells import LOSS_NAMES
from proxysynth.paper.tables.conventional import TABLE_OF
from proxysynth.regularizers import ProxySynthesis
from proxysynth.values import read_toml

EQUAL = 1e-9  # added to a margin that may be zero, as in "at least"

# Rows against rows

Rows = str | Keys  # a row, or several of which the highest counts


def above(
    e: Evidence,
    tables: Keys,
    pairs: Sequence[tuple[Rows, Rows]],
    columns: Keys = (),
    opposite: Keys = (),
    digits: int = 1,
) -> Finding:
    """The first of each pair of rows is above the second, in each column of each table, of all that
    have numbers by default; below it in the columns `opposite`."""
    margins, texts = {}, []
    for table in tables:
        asked = columns or e.measured_columns(table)
        names = [name for row in e.tables[table].rows for name in (row.key, *row.labels)]
        for column in asked:
            found: dict[str, float] = {}
            where = titled(table) + ": " if len(tables) > 1 else ""
            where += e.named(table, column) + ": " if len(asked) > 1 else ""
            for ends in pairs:
                order = reversed(ends) if column in opposite else ends
                first, second = ([rows] if isinstance(rows, str) else rows for rows in order)
                found |= {row: e.value(table, row, column) for row in chain(first, second)}
                over = max(found[row] for row in first) - max(found[row] for row in second)
                margins[f"{where}{_shortened(first)} above {_shortened(second)}"] = over
            shown = {row: found[row] for row in sorted(found, key=names.index)}
            texts.append(where + listed(shown, digits))
    return Finding(margins, "; ".join(texts))


def _shortened(rows: Sequence[str]) -> str:
    """ "static lam 0.2, 0.3, 0.4"."""
    shared = rows[0].rpartition(" ")[0]
    return ", ".join([rows[0], *(row.removeprefix(shared).strip() for row in rows[1:])])


def over_epochs(e: Evidence) -> Finding:
    """MAP@R of Figure D rises from row to row."""
    pairs = [(b, a) for a, b in pairwise(e.rows("figureD"))]
    return above(e, ["figureD"], pairs, ["map@r"])


def best(e: Evidence, table: str, row: str) -> Finding:
    """The row is the best in each column; cells that are not applicable do not count."""
    margins, found, shown = {}, [], e.tables[table]
    for i, head in enumerate(shown.columns):
        names = [line.key for line in shown.rows if not line.cells[i].text]
        values = {name: e.value(table, name, head.key) for name in names}
        found.append(max(values, key=values.__getitem__))
        margin = values.pop(row) - max(values.values())
        margins[f"{row} best, {e.named(table, head.key)}"] = margin
    return Finding(margins, f"best in the columns of {titled(table)}: {', '.join(found)}")


def beats_cited(e: Evidence, every: bool) -> Finding:
    """Recall@1 with Proxy Synthesis is above all without it in Tables F, H, J and L; with `every`,
    each loss's is above those of the cited methods."""
    if e.view != "paper":
        raise NotTestable("the cited methods are not run here")
    margins, texts = {}, []
    for letter in TABLE_OF.values():
        rows = [row for row in e.rows(f"table{letter}") if not row.startswith("-")]
        found = {row: e.value(f"table{letter}", row, "recall@1") for row in rows}
        ours = [value for row, value in found.items() if "PS + " in row]
        without = "Proxy" if every else "Proxy PS + "
        most = max(value for row, value in found.items() if not row.startswith(without))
        margins[f"Table {letter}"] = (min if every else max)(ours) - most
        if every:
            below = sum(value <= most for value in ours)
            text = f"best cited {most:.1f}, {below} of {len(ours)} PS not above"
        else:
            top = max(found, key=found.__getitem__)
            text = f"{top.removeprefix('Proxy ')} {found[top]:.1f}"
        texts.append(f"Table {letter}: {text}")
    return Finding(margins, "; ".join(texts))


# Changes against the plain loss


def rounded(value: float, digits: int = 1) -> float:
    """As a table prints it: the paper's own differences are of rounded numbers."""
    return round(value + 1e-9, digits)


def rise(
    e: Evidence, sign: int = 1, average: float | None = None, best_row: str = "", **where: Any
) -> Finding:
    """Every change is above zero (below it with the sign -1), their mean at least `average`, and
    `best_row` the best of its table in each column. `where`: arguments of `Evidence.gains`."""
    gains = e.gains(**where)
    margins = {name: sign * gain for name, gain in gains.values.items()}
    if average is not None:
        e.need_room(fmean(gains.baselines), average, "Recall@1 on average")
        margins["average"] = sign * (rounded(gains.mean, 2) - average) + EQUAL
    if best_row:
        margins |= best(e, where["tables"][0], best_row).margins
    return Finding(margins, gains.text)


def gain_range(e: Evidence, least: float, most: float, average: float, **where: Any) -> Finding:
    """The least, the largest and the mean change are at least so large."""
    gains = e.gains(**where)
    e.need_room(max(gains.baselines), least, "the best plain loss")
    e.need_room(min(gains.baselines), most, "every plain loss")
    found = list(gains.values.values())
    margins = {
        "least gain": rounded(min(found)) - least + EQUAL,
        "largest gain": rounded(max(found)) - most + EQUAL,
        "average gain": rounded(gains.mean) - average + EQUAL,
    }
    return Finding(margins, gains.text)


def mostly_rise(e: Evidence, **where: Any) -> Finding:
    """More than half of the changes are above zero."""
    gains = e.gains(**where)
    share = fmean(gain > 0 for gain in gains.values.values())
    return Finding({"more than half": share - 0.5}, gains.text)


def classify_well(e: Evidence) -> Finding:
    """Table D for the first half of the sentence, Table 5 for the second."""
    rows = ("Virtual Softmax", "Input Mixup", "Manifold Mixup")
    classified = rise(e, tables=["tableD"], rows=rows, partial=True)
    retrieved = best(e, "table5", "Proxy Synthesis")
    text = f"in classification, {classified.text}; {retrieved.text}"
    return Finding({**classified.margins, **retrieved.margins}, text)


# Table B, Figures A and C

ALMOST_TWICE = 1.8


def almost_twice(e: Evidence, loss: str) -> Finding:
    """With Proxy Synthesis, the mean over lam is at least `ALMOST_TWICE` times as high, seen and
    unseen."""
    ratios = {}
    for part, name in (("train", "seen classes"), ("test", "unseen classes")):
        plain = fmean(e.column("tableB", f"{loss} {part} none").values())
        e.need_room(plain, (ALMOST_TWICE - 1) * plain, f"the mean of Table B on {name}")
        mixed = fmean(e.column("tableB", f"{loss} {part} proxy_synthesis").values())
        ratios[name] = mixed / plain if plain else float("inf")
    margins = {name: ratio - ALMOST_TWICE + EQUAL for name, ratio in ratios.items()}
    return Finding(margins, listed(ratios, 2) + " times")


def peak_in_the_middle(e: Evidence) -> Finding:
    """The curves of Norm-softmax peak at 0.50 and are lower at their ends."""
    peaks, margins = [], {}
    methods = (("none", "plain"), ("proxy_synthesis", "PS"))
    for part, (regularizer, method) in product(("train", "test"), methods):
        name, curve = f"{part}, {method}", e.column("tableB", f"norm_softmax {part} {regularizer}")
        peaks.append(f"{max(curve, key=curve.__getitem__)} ({name})")
        before = max(value for lam, value in curve.items() if float(lam) < 0.5)
        after = max(value for lam, value in curve.items() if float(lam) > 0.5)
        ends = (curve["0.10"] + curve["0.95"]) / 2
        margins[f"{name}: 0.50 above smaller lam"] = curve["0.50"] - before
        margins[f"{name}: 0.50 not below larger lam"] = curve["0.50"] - after + EQUAL
        margins[f"{name}: 0.50 above the ends"] = curve["0.50"] - ends
    return Finding(margins, f"peak at {', '.join(peaks)}")


def small_alphas(e: Evidence) -> Finding:
    """In Figure A, the mean over mu is higher for an alpha up to 0.8 than above."""
    mus = [head.key for head in e.tables["figureA"].columns]
    found = {a: fmean(e.value("figureA", a, mu) for mu in mus) for a in e.rows("figureA")}
    large = [value for alpha, value in found.items() if float(alpha) > 0.8]
    if not large:
        raise Missing("figureA", "alpha above 0.8 in ")
    small = fmean(value for alpha, value in found.items() if float(alpha) <= 0.8)
    text = f"mean {small:.1f} for alpha up to 0.8, {fmean(large):.1f} above"
    return Finding({"small above large alpha": small - fmean(large)}, text)


def mu_around_one(e: Evidence) -> Finding:
    """In Figure A, the best mean over alpha is at a mu from 0.5 to 1.5."""
    mus = [head.key for head in e.tables["figureA"].columns]
    found = {mu: fmean(e.column("figureA", mu).values()) for mu in mus}
    if len(found) < 3:
        raise Missing("figureA", "more than two mu in ")
    inside = max(value for mu, value in found.items() if 0.5 <= float(mu) <= 1.5)
    outside = max(value for mu, value in found.items() if not 0.5 <= float(mu) <= 1.5)
    text = listed({f"mu {mu}": value for mu, value in found.items()})
    return Finding({"mu from 0.5 to 1.5 above the others": inside - outside}, text)


def many_classes(e: Evidence) -> Finding:
    """Figure C shows 100 seen and 100 unseen classes with more than 10 images each."""
    margins, texts = {}, []
    for part in ("seen", "unseen"):
        count, least, most = (e.value("figureC", part, key) for key in ("classes", "least", "most"))
        if least <= 10:
            raise NotTestable(f"the {part} classes here have {least:.0f} images")
        margins[f"{part} classes"] = 0.5 - abs(count - 100)
        margins[f"{part} images"] = least - 10
        texts.append(f"{count:.0f} {part} classes with {least:.0f} to {most:.0f} images shown")
    return Finding(margins, "; ".join(texts))


# Code and cost

MUS = ("0.2", "0.5", "1", "1.5", "2")
STEP = 1000.0
"""Milliseconds of a training step on the two cores of Table A: 128 images of 96 pixels through
EfficientNet-Lite0, less than the paper's network and images; 126 images per second in
results/bench_training_efficientnet-lite0_at_96_pixels.csv."""


def any_loss(e: Evidence) -> Finding:
    """Every loss was trained with Proxy Synthesis on every dataset of Table 6."""
    for name in LOSS_NAMES.values():
        for column in RETRIEVAL:
            e.value("table6", f"PS + {name}", column)
    return Finding({"losses": 0.5}, f"{len(LOSS_NAMES)} losses of 8 trained")


def plug_and_play(e: Evidence) -> Finding:
    """Every loss, unchanged, is given originals and synthetics; nothing else is computed."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 8, generator=g), torch.arange(12) % 4
    margins = {}
    for key, name in LOSS_NAMES.items():
        loss = LOSSES[key]()
        shape = (4, loss.k, 8) if key == "soft_triple" else (4, 8)
        p = torch.randn(*shape, generator=g)
        made = ProxySynthesis(loss).synthesize(x, y, p, torch.Generator().manual_seed(1))
        plain = loss(torch.cat((x, made.x)), torch.cat((y, made.y)), torch.cat((p, made.p)))
        value = ProxySynthesis(loss)(x, y, p, generator=torch.Generator().manual_seed(1))
        margins[name] = 1e-4 - float((value - plain).abs())
    equal = sum(margin > 0 for margin in margins.values())
    return Finding(margins, f"equal for {equal} of {len(margins)} losses")


def milliseconds(e: Evidence) -> Finding:
    limits, margins, texts = {"generation": 0.467, "loss": 1.530}, {}, []
    for what, limit in limits.items():
        found = [e.value("tableA", mu, what) for mu in MUS]
        margins[what] = limit - max(found) + EQUAL
        texts.append(f"{what} {min(found):.3f} to {max(found):.3f} ms")
    if e.view != "paper":
        raise NotTestable(f"milliseconds of a Tesla P40; here, on a CPU, {', '.join(texts)}")
    return Finding(margins, ", ".join(texts))


def negligible(e: Evidence) -> Finding:
    added = e.value("tableA", "1", "fused step") - e.value("tableA", "0", "fused step")
    text = f"{added:+.2f} ms, {added / STEP:.2%} of a training step of {STEP / 1000:.1f} s"
    return Finding({"share": 0.01 - added / STEP}, text)


def memory(e: Evidence) -> Finding:
    found = {f"mu {mu}": e.value("tableA", mu, "features") for mu in MUS}
    margins = {mu: 0.01 - abs(value - 1 - float(mu[3:])) for mu, value in found.items()}
    return Finding(margins, f"{listed(found, 2)} N")


# The claims


def _claim(rule: str, given: dict[str, Any] | None = None, **fields: Any) -> Claim:
    return Claim(rule=partial(globals()[rule], **(given or {})), **fields)


_FILE = read_toml(Path(__file__).with_name("claims.toml"))
CLAIMS = tuple(_claim(**entry) for entry in _FILE["claim"])
DIFFERENCES: tuple[str, ...] = tuple(_FILE["differences"])
"""Where this code does something else than the paper's text."""
NOTED = ("conventional", "mlrc", "table5", "tableA", "tableD")
"""Files of printed numbers with notes on contradictions."""


def contradictions(checked: Sequence[Checked]) -> list[str]:
    """Of the text, of printed numbers with each other, and of sentences with their own tables."""
    notes = dict.fromkeys(note for name in NOTED for note in notes_of(name))
    sentences = [
        f"“{one.claim.sentence}” ({one.claim.where}): {one.paper.evidence}."
        for one in checked
        if one.paper.status == "contradicts itself"
    ]
    return [*_FILE["contradictions"], *(f"{n[:1].upper()}{n[1:]}." for n in notes), *sentences]
