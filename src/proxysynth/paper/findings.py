"""What was found, in at most ten plain sentences, from the same numbers as the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from proxysynth.formatting import and_join
from proxysynth.paper.artifact import Table
from proxysynth.paper.claims.claim import STATUSES, Checked, Evidence, Missing, listed
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.tables.ablations import MODEL_NAMES
from proxysynth.paper.tables.conventional import TABLE_OF


def findings(tables: Mapping[str, Table], checked: Sequence[Checked], scale: Scale) -> list[str]:
    """At most ten sentences; a table without numbers of ours gives none."""
    if scale.name == "smoke":
        return ["Training stopped after a few steps: the numbers on this page are meaningless."]
    ours, found = Evidence(tables, "mean"), []
    for sentence in (_table6, _map, _mlrc, _table1, _table3, _table_b, _table5, _cost):
        try:
            found.append(sentence(ours))
        except Missing:
            continue
    last = f"Of {len(checked)} claims about results, {counted(checked)}."
    return [_setting(tables, scale), *found, last]


def counted(checked: Iterable[Checked]) -> str:
    """ "12 are supported, 3 contradicted, 8 undecided, 4 not testable here, 9 not run"."""
    found = [one.ours.status for one in checked]
    texts = [f"{found.count(status)} {status}" for status in STATUSES]
    verb = " is " if found.count(STATUSES[0]) == 1 else " are "
    return and_join([texts[0].replace(" ", verb, 1), *texts[1:3], f"{texts[3]} here", texts[4]])


def _setting(tables: Mapping[str, Table], scale: Scale) -> str:
    """What the columns of each data set hold."""
    if scale.name == "paper":
        return f"The paper's data, network and settings, over {len(scale.seeds)} seeds."
    held: dict[str, dict[str, None]] = {name: {} for name in NAMES.values()}
    for letter, table in tables.items():
        for column in table.columns if letter[5:] not in TABLE_OF.values() else ():
            if column.ours and column.paper in held:
                held[column.paper][column.ours] = None
            elif column.key.endswith(" photographs"):
                held["CUB200"][f"photographs ({column.ours})"] = None
    what = [f"for {name}, {' and '.join(ours)}" for name, ours in held.items() if ours]
    return (
        "Drawn characters and a small network stand in for most of the paper's photographs and for "
        "BN-Inception: compare directions and sizes of differences, not the numbers."
        + (f" Our columns show, {'; '.join(what)}." if what else "")
    )


def _summary(ours: Evidence, tables: Sequence[str], **where: Any) -> str:
    """ "+0.3 points on average; 5 of 32 rise and 1 falls beyond the spread of the seeds"."""
    gains = ours.gains(tables, **where, partial=True)
    up, down = ((gains.verdicts or []).count(kind) for kind in ("better", "worse"))
    return (
        f"{gains.mean:+.1f} points on average; {up} of {len(gains.values)} rise and {down} "
        f"fall{'s' * (down == 1)} beyond the spread of the seeds"
    )


def _table6(ours: Evidence) -> str:
    paper = Evidence(ours.tables, "paper").gains(["table6"])
    return (
        f"Over the eight losses, Proxy Synthesis changes Recall@1 by {_summary(ours, ['table6'])} "
        f"(Table 6). The paper reports {paper.mean:+.1f}."
    )


def _map(ours: Evidence) -> str:
    change = _summary(ours, [f"table{letter}" for letter in TABLE_OF.values()], columns=["map@r"])
    return f"In MAP@R, which counts all neighbors of the class, the change is {change}."


def _mlrc(ours: Evidence) -> str:
    heads = [head for head in ours.columns("table4") if head.key.endswith("map@r")]
    change = _summary(ours, ["table4"], columns=[head.key for head in heads])
    ran = and_join(head.ours for head in heads if head.ours)
    return (
        f"After a hyper-parameter search for each row (MLRC) on {ran}, MAP@R changes by {change} "
        "(Table 4)."
    )


def _table1(ours: Evidence) -> str:
    found = {name: ours.value("table1", name, "R@1") for name in MODEL_NAMES}
    best = max(found, key=found.__getitem__)
    return f"Of the ablations, {best} has the highest Recall@1 ({listed(found)}; Table 1)."


def _table3(ours: Evidence) -> str:
    _, *deformed = ours.rows("table3")
    change = _summary(ours, ["table3"], rows=deformed, columns=["proxy_synthesis"])
    return f"On deformed images, Recall@1 changes by {change} (Table 3)."


def _table_b(ours: Evidence) -> str:
    def mean(part: str, regularizer: str) -> float:
        column = f"norm_softmax {part} {regularizer}"
        return fmean(ours.value("tableB", lam, column) for lam in ours.rows("tableB"))

    seen, unseen = (
        f"from {mean(part, 'none'):.1f} to {mean(part, 'proxy_synthesis'):.1f}"
        for part in ("train", "test")
    )
    return (
        "When mixtures of two classes search for each other, Proxy Synthesis changes the mean "
        f"Recall@1 {seen} on seen classes and {unseen} on unseen classes (Table B; the paper: "
        "almost twice)."
    )


def _table5(ours: Evidence) -> str:
    means = {}
    for row in ours.rows("table5")[1:]:
        means[row] = ours.gains(["table5"], [row], partial=True).mean
    changes = and_join(f"{name} {round(mean, 1) + 0.0:+.1f}" for name, mean in means.items())
    return f"Mean change of Recall@1 by regularizer: {changes} (Table 5)."


def _cost(ours: Evidence) -> str:
    return (
        "With 98 classes, a forward and backward pass of the loss with mu 1 takes "
        f"{ours.value('tableA', '1', 'ratio'):.1f} times that of the plain loss (Table A)."
    )
