"""What was found, in at most ten plain sentences, from the same numbers as the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from proxysynth.formatting import and_join
from proxysynth.paper.artifact import Cell, Table
from proxysynth.paper.claims.claim import STATUSES, Checked
from proxysynth.paper.claims.mechanism import DEFORMED, MODELS
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES, RETRIEVAL
from proxysynth.paper.tables.cells import LOSS_NAMES
from proxysynth.paper.tables.conventional import TABLE_OF

Tables = Mapping[str, Table]


def findings(tables: Tables, checked: Sequence[Checked], scale: Scale) -> list[str]:
    """At most ten sentences; a table without numbers of ours gives none."""
    if scale.name == "smoke":
        return ["Training stopped after a few steps: the numbers on this page mean nothing."]
    makers = (_table6, _map, _mlrc, _table1, _table3, _table_b, _table5, _cost)
    found = [text for make in makers if (text := make(tables))]
    return [_setting(scale), *found, f"Of {len(checked)} claims about results, {counted(checked)}."]


def counted(checked: Iterable[Checked]) -> str:
    """ "12 are supported, 3 contradicted, 8 undecided, 4 not testable here, 9 not run"."""
    found = [one.ours.status for one in checked]
    texts = [f"{found.count(status)} {status}" for status in STATUSES]
    return and_join([texts[0].replace(" ", " are ", 1), *texts[1:3], f"{texts[3]} here", texts[4]])


def _setting(scale: Scale) -> str:
    if scale.name == "paper":
        return f"The paper's data, network and settings, over {len(scale.seeds)} seeds."
    photos = [NAMES[name] for name in RETRIEVAL if "glyphs" not in scale.heading(name)]
    real = f"; {and_join(photos)} shows photographs" if photos else ""
    return (
        "Drawn characters and a small network stand in for the paper's photographs and "
        f"BN-Inception{real}: compare directions and sizes of differences, not the numbers."
    )


def _cells(tables: Tables, table: str, places: Iterable[tuple[str, str]]) -> list[Cell]:
    """The measured cells at these (row, column) keys."""
    cells = [tables[table].cell(row, column) for row, column in places] if table in tables else []
    return [cell for cell in cells if cell is not None and cell.difference is not None]


def _summary(cells: Sequence[Cell], unit: str = "points") -> str:
    """ "+0.3 points on average; 5 of 32 rise and 1 falls beyond the spread of the seeds"."""
    gains = [cell.difference for cell in cells if cell.difference is not None]
    verdicts = [cell.verdict for cell in cells]
    up, down = verdicts.count("better"), verdicts.count("worse")
    return (
        f"{fmean(gains):+.1f} {unit} on average; {up} of {len(gains)} rise and {down} "
        f"fall{'s' * (down == 1)} beyond the spread of the seeds"
    )


def _table6(tables: Tables) -> str:
    places = [(f"PS + {name}", b) for b in RETRIEVAL for name in LOSS_NAMES.values()]
    cells = _cells(tables, "table6", places)
    theirs = [
        cell.paper - cell.paper_baseline
        for cell in cells
        if cell.paper is not None and cell.paper_baseline is not None
    ]
    if not cells or not theirs:
        return ""
    return (
        f"Over the eight losses, Proxy Synthesis changes Recall@1 by {_summary(cells)} (Table 6). "
        f"The paper reports {fmean(theirs):+.1f}."
    )


def _map(tables: Tables) -> str:
    cells = []
    for letter in TABLE_OF.values():
        places = [(f"Proxy PS + {name} BN 512", "map@r") for name in LOSS_NAMES.values()]
        cells += _cells(tables, f"table{letter}", places)
    if not cells:
        return ""
    return f"In MAP@R, which counts all neighbors of the class, the change is {_summary(cells)}."


def _mlrc(tables: Tables) -> str:
    for name in ("table4", "tableG"):
        table = tables.get(name)
        if table is not None:
            columns = [column.key for column in table.columns if column.key.endswith("map@r")]
            places = [(row.key, column) for row in table.rows for column in columns]
            cells = _cells(tables, name, places)
            if cells:
                ran = and_join(dict.fromkeys(c.ours for c in table.columns if c.ours))
                return (
                    "After a search of each row's own settings (MLRC) on "
                    f"{ran}, MAP@R changes by {_summary(cells)} ({table.title})."
                )
    return ""


def _table1(tables: Tables) -> str:
    cells = {
        name: cell
        for name, row in MODELS.items()
        if "table1" in tables and (cell := tables["table1"].cell(row, "R@1")) and cell.ours
    }
    if len(cells) < len(MODELS):
        return ""
    means = {name: fmean(cell.ours) for name, cell in cells.items()}
    best = max(means, key=means.__getitem__)
    label = "the whole of Proxy Synthesis" if best == "PS" else f"the part {best}"
    listed = ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())
    return f"Of the ablations, {label} has the highest Recall@1 ({listed}; Table 1)."


def _table3(tables: Tables) -> str:
    cells = _cells(tables, "table3", [(name, "proxy_synthesis") for name in DEFORMED])
    if not cells:
        return ""
    return f"On deformed images, Recall@1 changes by {_summary(cells)} (Table 3)."


def _table_b(tables: Tables) -> str:
    table = tables.get("tableB")
    if table is None:
        return ""
    ratios = []
    for part, name in (("train", "seen"), ("test", "unseen")):
        means = []
        for regularizer in ("none", "proxy_synthesis"):
            column = f"norm_softmax {part} {regularizer}"
            cells = [table.cell(row.key, column) for row in table.rows]
            if not all(cell is not None and cell.ours for cell in cells):
                return ""
            means.append(fmean(fmean(cell.ours) for cell in cells if cell is not None))
        ratios.append(f"{means[0]:.1f} to {means[1]:.1f} on {name} classes")
    return (
        "When mixtures of two classes search for each other, the mean Recall@1 goes with Proxy "
        f"Synthesis from {' and from '.join(ratios)} (Table B; the paper: almost twice)."
    )


def _table5(tables: Tables) -> str:
    table = tables.get("table5")
    if table is None:
        return ""
    means = {}
    for row in table.rows:
        cells = _cells(tables, "table5", [(row.key, column.key) for column in table.columns])
        if cells:
            means[row.key] = fmean(c.difference for c in cells if c.difference is not None)
    if not means:
        return ""
    listed = and_join(f"{name} {mean:+.1f}" for name, mean in means.items())
    return f"Mean change of Recall@1 by regularizer: {listed} (Table 5)."


def _cost(tables: Tables) -> str:
    cell = tables["tableA"].cell("1", "ratio") if "tableA" in tables else None
    if cell is None or not cell.ours:
        return ""
    return (
        f"With 98 classes, a forward and backward pass of the loss with mu 1 takes "
        f"{cell.ours[0]:.1f} times that of the plain loss (Table A)."
    )
