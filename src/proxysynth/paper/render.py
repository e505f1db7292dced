"""Tables and figures as Markdown, CSV, LaTeX, HTML and image files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from proxysynth.files import write_bytes
from proxysynth.formatting import DASH, signed
from proxysynth.paper.artifact import Cell, Column, PaperFigure, Row, Table
from proxysynth.report.figures import write_figure
from proxysynth.report.pages import data_uri, environment
from proxysynth.report.statistics import half_width


class CellText(NamedTuple):
    """A cell as text. The paper's number has no interval, and so no verdict."""

    ours: str  # "84.7 ± 0.3", or a dash if not run
    change: str  # "+1.4" against the baseline, "" without one
    verdict: str  # "better" or "worse" where the 95% interval of the difference excludes zero
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

    mean = fmean(cell.ours) if cell.ours else None
    spread = None
    change = theirs = ""
    if len(cell.ours) > 1:
        spread = half_width(cell.ours) if cell.of_mean else stdev(cell.ours)
    if cell.difference is not None and not cell.gain:
        change = signed(cell.difference, cell.digits)
    if cell.paper is not None and cell.paper_baseline is not None:
        theirs = signed(cell.paper - cell.paper_baseline, cell.digits)
    ours = shown(mean, spread) + " *" * cell.chosen
    return CellText(ours, change, cell.verdict, shown(cell.paper, cell.paper_spread), theirs)


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
    rows = map(markdown_row, [head, ["---"] * len(head), *_text_rows(table, ours, str)])
    images = ["", f"![{table.images_caption}]({name}.png)"] if table.images and name else []
    marks = f"▲ better, ▼ worse, where the spread of the seeds supports it. {DASH}: not run."
    above, notes = [f"# {table.title}", "", table.caption, ""], [f"- {n}" for n in table.notes]
    return "\n".join([*above, *rows, "", marks, "", *notes, *images, ""])


def figure_markdown(figure: PaperFigure, name: str) -> str:
    """Title, the image, caption, notes."""
    lines = [f"# {figure.title}", "", f"![{figure.title}]({name}.svg)", "", figure.caption, ""]
    return "\n".join([*lines, *(f"- {note}" for note in figure.notes), ""])


def markdown_row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


# CSV


def table_csv(table: Table, about: Mapping[str, str]) -> str:
    """A line per cell with every seed's number; `about` is repeated in every line."""

    def text(*values: float | None) -> str:
        return " ".join("" if value is None else f"{value:.6g}" for value in values)

    def line(row: Row, column: Column, cell: Cell) -> dict[str, Any]:
        low, high = cell.interval or (None, None)
        values = {
            "table": table.title,
            "row": " | ".join(row.labels),
            "column": column.name,
            "ran_on": column.ours if cell.ours else "",
            "mean": text(fmean(cell.ours)) if cell.ours else "",
            "deviation": text(stdev(cell.ours)) if len(cell.ours) > 1 else "",
            "seeds": len(cell.ours) or "",
            "values": text(*cell.ours),
            "baseline": text(*cell.baseline),
            "last_epoch": text(*cell.last),
            "change": text(cell.difference),
            "change_low": text(low),
            "change_high": text(high),
            "verdict": cell.verdict,
            "chosen": "yes" if cell.chosen else "",
            "paper": text(cell.paper),
            "paper_spread": text(cell.paper_spread),
            "paper_on": column.paper,
        }
        return {**values, **about, **values}

    fields = line(Row((), ()), Column(""), Cell())
    return rows_csv([line(*of) for of in table.cells()], fields)


def rows_csv(rows: Sequence[Mapping[str, Any]], fields: Iterable[str] = ()) -> str:
    """Any rows, such as the numbers behind a figure."""
    names = list(fields) or list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


# LaTeX

SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    DASH: "--", "±": r"$\pm$",
})  # fmt: skip
COLORS = {"better": "ForestGreen", "worse": "Red"}


def table_latex(table: Table) -> str:
    """A float with a caption. The preamble needs `\\usepackage{booktabs,adjustbox}` and
    `\\usepackage[dvipsnames]{xcolor}`."""

    def ours(text: CellText) -> str:
        shown = latex_escape(text.ours)
        changed = f"({text.change})" if text.change else shown
        if text.verdict:
            changed = f"\\textcolor{{{COLORS[text.verdict]}}}{{{changed}}}"
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
    return text.translate(SPECIAL)


# HTML


def render(template: str, **context: Any) -> str:
    """A page or a part of it from the templates of this package, which extend the report's."""
    return environment("proxysynth.paper").get_template(template).render(**context)


def section(name: str, made: Table | PaperFigure, folder: Path) -> str:
    """A table or figure as a section of the page; `name` is its anchor, `folder` has its image."""
    path, kind = folder / f"{name}.png", "table" if isinstance(made, Table) else "figure"
    image = data_uri(path.read_bytes()) if path.exists() else ""
    given = {"table": None, "figure": None, kind: made, "cell_text": cell_text}
    return render("section.html", name=name, image=image, **given)


# Files


def write_files(
    folder: Path, name: str, made: Table | PaperFigure, about: Mapping[str, str]
) -> list[Path]:
    """A table as NAME.md, .csv and .tex, and NAME.png for the images below it; a figure as
    NAME.svg, .pdf, .png and .md, NAME.csv for its data and NAME_numbers.csv for its numbers."""
    if isinstance(made, Table):
        paths, files = [], {".md": table_markdown(made, name), ".csv": table_csv(made, about)}
        files[".tex"] = table_latex(made)
    else:
        kinds, look = ("svg", "pdf", "png"), {"dpi": 200, "bbox_inches": "tight"}
        paths = write_figure(made.figure, folder, name, kinds, fonts="path", **look)
        files = {".md": figure_markdown(made, name)}
        files |= {".csv": rows_csv(made.data)} if made.data else {}
        files |= {"_numbers.csv": table_csv(made.numbers, about)} if made.numbers else {}
    contents = {ending: text.encode() for ending, text in files.items()}
    if isinstance(made, Table) and made.images:
        contents[".png"] = made.images
    for ending, content in contents.items():
        paths.append(folder / f"{name}{ending}")
        write_bytes(paths[-1], content)
    return paths
