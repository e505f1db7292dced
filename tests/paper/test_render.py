"""Markdown, LaTeX, HTML of one made-up table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxysynth.paper.artifact import Cell, Column, PaperFigure, Row, Table
from proxysynth.paper.render import (
    latex_escape,
    rows_csv,
    section,
    table_csv,
    table_latex,
    table_markdown,
    write_files,
)

NOWHERE = Path("nowhere")
SURE = Cell((85.0, 86.0, 87.0), 84.7, baseline=(83.0, 84.1, 85.0), paper_baseline=83.3)
WORSE = Cell((80.0, 81.0, 82.0), 84.7, baseline=(83.0, 84.1, 85.0))
UNSURE = Cell((85.0, 80.0, 90.0), 84.7, baseline=(83.0, 84.1, 85.0), paper_baseline=83.3)
TABLE = Table(
    "Table 9",
    "Made up & 100 % <fun>.",
    ("loss_name",),
    (Column("R@1", "glyphs", "CARS196", "r"), Column("MAP@R", "glyphs", "", "m")),
    (
        Row(("sure",), (SURE, Cell())),
        Row(("worse",), (WORSE, Cell((1.5,), chosen=True))),
        Row(("unsure | <b>",), (UNSURE, Cell((0.5, 0.7), gain=True))),
        Row(("none",), (Cell(paper=50.0), Cell(text="n/a"))),
    ),
    ("A note with `code` & more.",),
)


def test_table_markdown() -> None:
    text = table_markdown(TABLE)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 6
    assert rows[0] == "| loss_name | R@1, glyphs | R@1, CARS196 (paper) | MAP@R, glyphs |"
    assert rows[2] == "| sure | 86.0 ± 1.0 (+2.0 ▲) | 84.7 (+1.4) | – |"
    assert rows[3] == "| worse | 81.0 ± 1.0 (-3.0 ▼) | 84.7 | 1.5 * |"
    assert rows[4].startswith(r"| unsure \| <b> | 85.0 ± 5.0 (+1.0) | 84.7 (+1.4) | +0.6 ± 0.1")
    assert rows[5] == "| none | – | 50.0 | n/a |"


def test_heading_names_measured_and_paper_datasets_once() -> None:
    cells = (Cell(paper=1.0),) * 3
    columns = (
        Column("P@1, CUB200", "glyphs 1", "CUB200"),
        Column("P@1, SOP", "", "SOP"),
        Column("P@1, concatenated", "glyphs 1", "CUB200"),
    )
    table = Table("Table 9", "", ("loss",), columns, (Row(("a",), cells),))
    heads = table_markdown(table).split("| loss | ")[1].splitlines()[0]
    assert heads == (
        "P@1, glyphs 1 | P@1, CUB200 (paper) | P@1, SOP: not run | P@1, SOP (paper) | "
        "P@1, concatenated, glyphs 1 | P@1, concatenated, CUB200 (paper) |"
    )
    for text in (section("t", table, NOWHERE), table_latex(table)):
        assert text.count("SOP") == 2  # what was not run, and the paper's
        assert text.count("CUB200") == 2


def test_adjacent_columns_of_one_group_share_a_heading() -> None:
    columns = (
        Column("Softmax, CARS196", "glyphs 2", "CARS196"),
        Column("Softmax, SOP", "glyphs 3", "SOP"),
        Column("MAP@R", "glyphs 3"),
    )
    table = Table("Table 9", "", ("loss",), columns, (Row(("a",), (Cell(),) * 3),))
    assert table.groups == [("Softmax", 4), ("MAP@R", 1)]
    assert '<th colspan="4" class="group">Softmax</th>' in section("t", table, NOWHERE)
    assert r"\multicolumn{4}{c}{Softmax}" in table_latex(table)


def test_dataset_columns_have_one_heading_row() -> None:
    columns = (Column("CUB200", "glyphs 1", "CUB200"), Column("SOP", "glyphs 3", "SOP"))
    table = Table("Table 9", "", ("loss",), columns, (Row(("a",), (Cell(), Cell())),))
    assert table_markdown(table).split("\n")[4] == (
        "| loss | glyphs 1 | CUB200 (paper) | glyphs 3 | SOP (paper) |"
    )
    assert section("t", table, NOWHERE).split("</thead>")[0].count("<tr>") == 1
    assert table_latex(table).split("midrule")[0].count(r"\\") == 1


def test_html_colors_only_significant_differences() -> None:
    text = section("table9", TABLE, NOWHERE)
    rows = re.findall(r"<tr>.*?</tr>", text.split("<tbody>")[1], re.S)
    assert 'class="better"> +2.0' in rows[0]
    assert 'class="worse"' in rows[1]
    assert "better" not in rows[2].split("</td>")[0]
    assert "worse" not in rows[2].split("</td>")[0]
    assert "better" not in rows[3]
    assert "–" in rows[3]
    assert "&lt;b&gt;" in text
    assert "<fun>" not in text
    assert "<code>code</code>" in text


def test_latex_is_escaped_with_equal_columns() -> None:
    text = table_latex(TABLE)
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().splitlines()
    assert all(len(re.findall(r"(?<!\\)&", line)) == 3 for line in body)
    assert "\\textcolor{ForestGreen}{(+2.0)}" in body[0]
    assert "\\textcolor{Red}{(-3.0)}" in body[1]
    assert "textcolor" not in body[2].split("&")[1]
    assert "Made up \\& 100 \\% " in text
    assert "loss\\_name" in text
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    for name in re.findall(r"\\begin\{(\w+)\}", text):
        assert f"\\end{{{name}}}" in text
    assert latex_escape("a_b ± 5 %") == r"a\_b $\pm$ 5 \%"


def test_table_csv() -> None:
    lines = table_csv(TABLE, {"commit": "abc"}).splitlines()
    assert len(lines) == 1 + 8
    assert lines[0].endswith("paper_on,commit")
    assert lines[1].startswith("Table 9,sure,R@1,glyphs,86,1,3,85 86 87,")
    assert ",better," in lines[1]
    assert lines[1].endswith(",CARS196,abc")


def test_csv_of_rows_with_different_fields() -> None:
    assert rows_csv([{"a": 1}, {"b": 2}]).splitlines() == ["a,b", "1,", ",2"]


def test_figure_is_written_as_vector_and_pixels(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4])
    picture = PaperFigure("Figure 9", "A line.", lambda: figure, [{"x": 1, "y": 3}])
    made = write_files(tmp_path, "figure9", picture, {})
    assert [path.suffix for path in made] == [".svg", ".pdf", ".png", ".md", ".csv"]
    first = {path.name: path.read_bytes() for path in made}
    write_files(tmp_path, "figure9", picture, {})
    assert {path.name: path.read_bytes() for path in made} == first  # the same bytes again
    html = section("figure9", picture, tmp_path)
    assert 'src="data:image/png;base64,' in html
    assert "A line." in html


def test_images_are_shown_below_a_table(tmp_path) -> None:  # type: ignore[no-untyped-def]
    table = replace(TABLE, images=b"\x89PNG", images_caption="What it <shows>.")
    made = write_files(tmp_path, "table9", table, {})
    assert [path.suffix for path in made] == [".md", ".csv", ".tex", ".png"]
    assert made[-1].read_bytes() == b"\x89PNG"
    assert "](table9.png)" in made[0].read_text()
    html = section("table9", table, tmp_path)
    assert 'src="data:image/png;base64,iVBORw=="' in html
    assert "<figcaption>What it &lt;shows&gt;.</figcaption>" in html
    assert "<figure>" not in section("table9", TABLE, NOWHERE)


def test_missing_cell_is_none() -> None:
    assert TABLE.cell("sure", "r") == SURE
    assert TABLE.cell("sure", "R@1") == SURE
    assert TABLE.cell("nobody", "r") is None
    assert TABLE.cell("sure", "x") is None


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zero_gain_has_no_sign(value: float) -> None:
    assert "| 0.0 " in table_markdown(
        Table("T", "", ("a",), (Column("g", "x"),), (Row(("l",), (Cell((value,), gain=True),)),))
    )
