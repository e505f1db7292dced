"""Tables and figures as Markdown, CSV, LaTeX, HTML and image files."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

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


class CellText(NamedTuple):
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

    def shown(value: float | None, spread: float | None) -> str:
        if value is None:
            return DASH
        text = signed(value, cell.digits) if cell.gain else f"{value:.{cell.digits}f}"
        return text if spread is None else f"{text} ± {spread:.{cell.digits}f}"

    def change(value: float | None) -> str:
        return "" if value is None else signed(value, cell.digits)

    spread, theirs = None, None
    if len(cell.ours) > 1:
        spread = half_width(cell.ours) if cell.of_mean else stdev(cell.ours)
    if cell.paper is not None and cell.paper_baseline is not None:
        theirs = cell.paper - cell.paper_baseline
    return CellText(
        shown(fmean(cell.ours) if cell.ours else None, spread) + " *" * cell.chosen,
        change(None if cell.gain else cell.difference),
        cell.verdict,
        shown(cell.paper, cell.paper_spread),
        change(theirs),
    )


def signed(value: float, digits: int) -> str:
    """+1.4, -0.2, and 0.0 without a sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def _text_rows(
    table: Table, ours: Callable[[CellText], str], escaped: Callable[[str], str]
) -> Iterator[list[str]]:
    """Labels and cells of each row; `ours` shows a number of ours with its change."""
    for row in table.rows:
        texts = [escaped(label) for label in row.labels]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = cell_text(cell)
            texts.append(ours(text))
            if column.paper:
                change = f" ({text.paper_change})" if text.paper_change else ""
                texts.append(escaped(text.paper) + change)
        yield texts


# Markdown

MARKS = {"better": " ▲", "worse": " ▼", "": ""}


def table_markdown(table: Table, name: str = "") -> str:
    """Title, caption, table, notes, and its images, which are in NAME.png."""

    def ours(text: CellText) -> str:
        mark = MARKS[text.verdict]
        return text.ours + (f" ({text.change}{mark})" if text.change else mark)

    head = list(table.stubs)
    for column in table.columns:
        head += [", ".join(filter(None, (column.measure, text))) for text in column.headings]
    rows = [head, ["---"] * len(head), *_text_rows(table, ours, str)]
    sheet = ["", f"![{table.sheet.caption}]({name}.png)"] if table.sheet and name else []
    marks = f"▲ better, ▼ worse, where the spread of the seeds supports it. {DASH}: not run."
    lines = [*map(markdown_row, rows), "", marks, "", *_bullets(table.notes), *sheet]
    return "\n".join([f"# {table.title}", "", table.caption, "", *lines, ""])


def figure_markdown(figure: PaperFigure, name: str) -> str:
    """Title, the image, caption, notes."""
    lines = [f"# {figure.title}", "", f"![{figure.title}]({name}.svg)", "", figure.caption, ""]
    return "\n".join([*lines, *_bullets(figure.notes), ""])


def markdown_row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _bullets(notes: Iterable[str]) -> list[str]:
    return [f"- {note}" for note in notes]


# CSV

FIELDS = (
    "table", "row", "column", "ran_on", "mean", "deviation", "seeds", "values", "baseline",
    "last_epoch", "change", "change_low", "change_high", "verdict", "chosen", "paper",
    "paper_spread", "paper_on",
)  # fmt: skip


def table_csv(table: Table, about: Mapping[str, str]) -> str:
    """A line per cell with every seed's number; `about` is repeated in every line."""

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.6g}"

    def texts(values: Iterable[float]) -> str:
        return " ".join(map(text, values))

    lines = []
    for row, column, cell in table.cells():
        low, high = cell.interval or (None, None)
        values = (
            table.title,
            " | ".join(row.labels),
            column.name,
            column.ours if cell.ours else "",
            text(fmean(cell.ours) if cell.ours else None),
            text(stdev(cell.ours) if len(cell.ours) > 1 else None),
            len(cell.ours) or "",
            texts(cell.ours),
            texts(cell.baseline),
            texts(cell.last),
            text(cell.difference),
            text(low),
            text(high),
            cell.verdict,
            "yes" if cell.chosen else "",
            text(cell.paper),
            text(cell.paper_spread),
            column.paper,
        )
        lines.append({**about, **dict(zip(FIELDS, values, strict=True))})
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

    def ours(text: CellText) -> str:
        shown, color = latex_escape(text.ours), COLORS.get(text.verdict)
        changed = f"({text.change})" if text.change else shown
        if color:
            changed = f"\\textcolor{{{color}}}{{{changed}}}"
        return f"{shown} {changed}" if text.change else changed

    headings = [text for column in table.columns for text in column.headings]
    spans = [
        f"\\multicolumn{{{width}}}{{c}}{{{latex_escape(name)}}}" for name, width in table.groups
    ]
    lines = [" & ".join([""] * len(table.stubs) + spans).strip()] if spans else []
    lines.append(" & ".join(map(latex_escape, (*table.stubs, *headings))))
    head = "\n".join(rf"{line} \\" for line in lines)
    rows = "".join(f"\n{' & '.join(texts)} \\\\" for texts in _text_rows(table, ours, latex_escape))
    caption = latex_escape(" ".join((table.caption, *table.notes)))
    return f"""\\begin{{table}}[t]
\\centering
\\begin{{adjustbox}}{{max width=\\linewidth}}
\\begin{{tabular}}{{{"l" * len(table.stubs)}{"c" * len(headings)}}}
\\toprule
{head}
\\midrule{rows}
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


def write_files(
    folder: Path,
    name: str,
    made: Table | PaperFigure,
    about: Mapping[str, str],
    numbers: Table | None = None,
) -> list[Path]:
    """A table as NAME.md, .csv and .tex, and NAME.png for the images below it; a figure as
    NAME.svg, .pdf, .png and .md, NAME.csv for its data and NAME_numbers.csv for `numbers`."""
    paths: list[Path] = []
    files: dict[str, str | bytes] = {}
    if isinstance(made, Table):
        files |= {".md": table_markdown(made, name), ".csv": table_csv(made, about)}
        files |= {".tex": table_latex(made)}
        files |= {".png": made.sheet.png} if made.sheet else {}
    else:
        paths += save_plot(folder, name, made.figure)
        files |= {".md": figure_markdown(made, name)}
        files |= {".csv": rows_csv(made.data)} if made.data else {}
        files |= {"_numbers.csv": table_csv(numbers, about)} if numbers else {}
    for ending, content in files.items():
        paths.append(folder / f"{name}{ending}")
        write_bytes(paths[-1], content.encode() if isinstance(content, str) else content)
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
