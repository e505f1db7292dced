"""A table as LaTeX, with booktabs; the colours need xcolor."""

from __future__ import annotations

from proxysynth.paper.artifact import Table
from proxysynth.paper.render.shown import Shown, show

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "±": r"$\pm$", "▲": "", "▼": "",
}  # fmt: skip
COLOURS = {"better": "ForestGreen", "worse": "Red"}


def table_latex(table: Table) -> str:
    """A float with caption; put `\\usepackage{booktabs,adjustbox}` and
    `\\usepackage[dvipsnames]{xcolor}` in the preamble."""
    subs = []
    for column in table.columns:
        subs.append(escaped(column.ours_head))
        subs += [escaped(column.paper_head)] if column.paper else []
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{escaped(name)}}}" for name, width in table.groups]
    labels = "l" * len(table.stubs)
    lines = [
        "\\begin{table}[t]",
        "\\centering",
        "\\begin{adjustbox}{max width=\\linewidth}",
        f"\\begin{{tabular}}{{{labels}{'c' * len(subs)}}}",
        "\\toprule",
        *([" & ".join([""] * len(table.stubs) + spans).strip() + r" \\"] if spans else []),
        " & ".join([*map(escaped, table.stubs), *subs]) + r" \\",
        "\\midrule",
    ]
    for row in table.rows:
        words = [escaped(label) for label in row.labels]
        for column, cell in zip(table.columns, row.cells, strict=True):
            shown = show(cell)
            words.append(_ours(shown))
            words += [_paper(shown)] if column.paper else []
        lines.append(" & ".join(words) + r" \\")
    notes = " ".join(escaped(note) for note in table.notes)
    name = table.title.replace(" ", "").lower()
    return "\n".join(
        [
            *lines,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{adjustbox}",
            f"\\caption{{{escaped(table.caption)} {notes}}}",
            f"\\label{{{name}}}",
            "\\end{table}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Plain text as LaTeX shows it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def _ours(shown: Shown) -> str:
    text = escaped(shown.ours)
    if not shown.change:
        return _coloured(text, shown)
    return f"{text} {_coloured(f'({shown.change})', shown)}"


def _coloured(text: str, shown: Shown) -> str:
    colour = COLOURS.get(shown.verdict)
    return f"\\textcolor{{{colour}}}{{{text}}}" if colour else text


def _paper(shown: Shown) -> str:
    change = f" ({shown.paper_change})" if shown.paper_change else ""
    return escaped(shown.paper) + change
