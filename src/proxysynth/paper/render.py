"""Tables and figures as Markdown, CSV, LaTeX, HTML and image files."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from jinja2 import Environment
from markupsafe import Markup, escape

from proxysynth.files import write_bytes
from proxysynth.formatting import DASH
from proxysynth.paper.artifact import Cell, PaperFigure, Table
from proxysynth.report.pages import environment
from proxysynth.report.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
_NO_DATES = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}  # the same figure always gives the same file


@dataclass(frozen=True)
class CellText:
    """A cell as text.

    Args:
        ours: "84.7 ± 0.3", or a dash if not run.
        change: "+1.4" against the baseline, "" without one.
        verdict: "better" or "worse" where the 95 % interval of the difference excludes zero.
        paper, paper_change: the same for the paper's number, which has no interval.
    """

    ours: str
    change: str
    verdict: str
    paper: str
    paper_change: str


def cell_text(cell: Cell) -> CellText:
    if cell.text:
        return CellText(cell.text, "", "", cell.text, "")
    change, paper_change = cell.difference, None
    if cell.paper is not None and cell.paper_baseline is not None:
        paper_change = cell.paper - cell.paper_baseline
    return CellText(
        ours=_ours(cell),
        change="" if change is None or cell.gain else signed(change, cell.digits),
        verdict=cell.verdict,
        paper=_paper(cell),
        paper_change="" if paper_change is None else signed(paper_change, cell.digits),
    )


def _ours(cell: Cell) -> str:
    if not cell.ours:
        return DASH
    text = _number(fmean(cell.ours), cell)
    if len(cell.ours) > 1:
        spread = half_width(cell.ours) if cell.of_mean else stdev(cell.ours)
        text += f" ± {spread:.{cell.digits}f}"
    return f"{text} *" if cell.chosen else text


def _paper(cell: Cell) -> str:
    if cell.paper is None:
        return DASH
    spread = "" if cell.paper_spread is None else f" ± {cell.paper_spread:.{cell.digits}f}"
    return f"{_number(cell.paper, cell)}{spread}"


def _number(value: float, cell: Cell) -> str:
    return signed(value, cell.digits) if cell.gain else f"{value:.{cell.digits}f}"


def signed(value: float, digits: int) -> str:
    """+1.4, -0.2, and 0.0 without a sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


# Markdown

MARKS = {"better": " ▲", "worse": " ▼", "": ""}


def table_markdown(table: Table, name: str = "") -> str:
    """Title, caption, table, notes, and its images, which are in NAME.png."""
    head = list(table.stubs)
    for column in table.columns:
        head += [", ".join(filter(None, (column.measure, text))) for text in column.headings]
    lines = [_markdown_row(head), _markdown_row(["---"] * len(head))]
    for row in table.rows:
        texts = list(row.labels)
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = cell_text(cell)
            change = f" ({text.change}{MARKS[text.verdict]})" if text.change else ""
            texts.append(text.ours + (change or MARKS[text.verdict]))
            if column.paper:
                change = f" ({text.paper_change})" if text.paper_change else ""
                texts.append(text.paper + change)
        lines.append(_markdown_row(texts))
    marks = f"▲ better, ▼ worse, where the spread of the seeds supports it. {DASH}: not run."
    sheet = ["", f"![{table.sheet.caption}]({name}.png)"] if table.sheet and name else []
    return "\n".join(
        [f"# {table.title}", "", table.caption, "", *lines, "", marks, "",
         *(f"- {note}" for note in table.notes), *sheet, ""]
    )  # fmt: skip


def figure_markdown(figure: PaperFigure, name: str) -> str:
    """Title, the image, caption, notes."""
    return "\n".join(
        [f"# {figure.title}", "", f"![{figure.title}]({name}.svg)", "", figure.caption, "",
         *(f"- {note}" for note in figure.notes), ""]
    )  # fmt: skip


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


# CSV

FIELDS = (
    "table", "row", "column", "ran_on", "mean", "deviation", "seeds", "values", "baseline",
    "last_epoch",
    "change", "change_low", "change_high", "verdict", "chosen", "paper", "paper_spread", "paper_on",
)  # fmt: skip


def table_csv(table: Table, about: Mapping[str, str]) -> str:
    """A line per cell with every seed's number; `about` is repeated in every line."""

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.6g}"

    lines = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            low, high = cell.interval or (None, None)
            lines.append(
                {
                    **about,
                    "table": table.title,
                    "row": " | ".join(row.labels),
                    "column": column.name,
                    "ran_on": column.ours if cell.ours else "",
                    "mean": text(fmean(cell.ours) if cell.ours else None),
                    "deviation": text(stdev(cell.ours) if len(cell.ours) > 1 else None),
                    "seeds": len(cell.ours) or "",
                    "values": " ".join(map(text, cell.ours)),
                    "baseline": " ".join(map(text, cell.baseline)),
                    "last_epoch": " ".join(map(text, cell.last)),
                    "change": text(cell.difference),
                    "change_low": text(low),
                    "change_high": text(high),
                    "verdict": cell.verdict,
                    "chosen": "yes" if cell.chosen else "",
                    "paper": text(cell.paper),
                    "paper_spread": text(cell.paper_spread),
                    "paper_on": column.paper,
                }
            )
    return rows_csv(lines, dict.fromkeys((*FIELDS, *about)))


def rows_csv(rows: Sequence[Mapping[str, Any]], fields: Iterable[str] = ()) -> str:
    """Any rows, such as the numbers behind a figure."""
    names = list(fields) or list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


# LaTeX

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    DASH: "--", "±": r"$\pm$",
}  # fmt: skip
COLORS = {"better": "ForestGreen", "worse": "Red"}


def table_latex(table: Table) -> str:
    """A float with a caption. The preamble needs `\\usepackage{booktabs,adjustbox}` and
    `\\usepackage[dvipsnames]{xcolor}`."""
    headings = [text for column in table.columns for text in column.headings]
    spans = [
        f"\\multicolumn{{{width}}}{{c}}{{{latex_escape(name)}}}" for name, width in table.groups
    ]
    lines = [" & ".join([""] * len(table.stubs) + spans).strip()] if spans else []
    lines.append(" & ".join(map(latex_escape, (*table.stubs, *headings))))
    lines.append("\\midrule")
    for row in table.rows:
        texts = [latex_escape(label) for label in row.labels]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = cell_text(cell)
            ours, color = latex_escape(text.ours), COLORS.get(text.verdict)
            changed = f"({text.change})" if text.change else ours
            if color:
                changed = f"\\textcolor{{{color}}}{{{changed}}}"
            texts.append(f"{ours} {changed}" if text.change else changed)
            if column.paper:
                change = f" ({text.paper_change})" if text.paper_change else ""
                texts.append(latex_escape(text.paper) + change)
        lines.append(" & ".join(texts))
    body = "\n".join(line if line == "\\midrule" else rf"{line} \\" for line in lines)
    caption = latex_escape(" ".join((table.caption, *table.notes)))
    return f"""\\begin{{table}}[t]
\\centering
\\begin{{adjustbox}}{{max width=\\linewidth}}
\\begin{{tabular}}{{{"l" * len(table.stubs)}{"c" * len(headings)}}}
\\toprule
{body}
\\bottomrule
\\end{{tabular}}
\\end{{adjustbox}}
\\caption{{{caption}}}
\\label{{{table.title.replace(" ", "").lower()}}}
\\end{{table}}
"""


def latex_escape(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)


# HTML


@cache
def templates() -> Environment:
    """The templates of this package, which extend those of the report."""
    made = environment("proxysynth.paper")
    made.filters |= {"code": code, "cell_text": cell_text, "png": data_uri}
    return made


def section(name: str, artifact: Table | PaperFigure) -> str:
    """A table or figure as a section of the page; `name` is its anchor."""
    template = templates().get_template("section.html")
    if isinstance(artifact, Table):
        return template.render(name=name, table=artifact, figure=None, image="")
    file = io.BytesIO()
    artifact.figure.savefig(file, format="png", dpi=160, bbox_inches="tight", facecolor="white")
    return template.render(name=name, table=None, figure=artifact, image=data_uri(file.getvalue()))


def data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def code(text: str) -> Markup:
    """Text with what stands between backticks as code."""
    parts = re.split(r"`([^`]*)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    )


# Files


def write_table(folder: Path, name: str, table: Table, about: Mapping[str, str]) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex, and NAME.png for the images below it."""
    texts = {
        "md": table_markdown(table, name),
        "csv": table_csv(table, about),
        "tex": table_latex(table),
    }
    paths = [_write(folder / f"{name}.{kind}", text) for kind, text in texts.items()]
    if table.sheet is not None:
        write_bytes(folder / f"{name}.png", table.sheet.png)
        paths.append(folder / f"{name}.png")
    return paths


def write_figure(
    folder: Path, name: str, figure: PaperFigure, about: Mapping[str, str]
) -> list[Path]:
    """NAME.svg, NAME.pdf, NAME.png, NAME.md, NAME.csv if it has data, and NAME_numbers.csv with
    what claims read."""
    paths = save_plot(folder, name, figure.figure)
    paths.append(_write(folder / f"{name}.md", figure_markdown(figure, name)))
    if figure.data:
        paths.append(_write(folder / f"{name}.csv", rows_csv(figure.data)))
    if figure.numbers is not None:
        text = table_csv(figure.numbers, about)
        paths.append(_write(folder / f"{name}_numbers.csv", text))
    return paths


def save_plot(
    folder: Path, name: str, figure: Figure, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """NAME in each format; reproducible byte for byte."""
    from matplotlib import rc_context

    paths = []
    for kind in formats:
        file = io.BytesIO()
        with rc_context({"svg.hashsalt": name}):
            figure.savefig(
                file, format=kind, dpi=200, bbox_inches="tight", metadata=_NO_DATES[kind]
            )
        paths.append(folder / f"{name}.{kind}")
        write_bytes(paths[-1], file.getvalue())
    return paths


def _write(path: Path, text: str) -> Path:
    write_bytes(path, text.encode())
    return path
