"""Markup escapes whatever it is given."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure

from proxysynth.report.figures import Curve, curves, histogram
from proxysynth.report.markup import Html, escape, page, tag
from proxysynth.report.svg import SERIES, inline_svg
from report.made_up_runs import Page

BAD = "<script>alert('x')</script> & \"quotes\""


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"))))
def test_any_text_comes_back_from_the_page(text):
    parsed = Page(page(text, tag("p", text, title=text)))
    assert [given["title"] for name, given in parsed.tags if name == "p"] == [text]
    assert "".join(parsed.texts).count(text) >= 1


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", BAD) == f"<p>{escape(BAD)}</p>"
    assert tag("p", tag("b", "x")) == "<p><b>x</b></p>"
    assert tag("p", [tag("b", 1), None, ["<"]]) == "<p><b>1</b>&lt;</p>"
    assert tag("td", "x", class_="number", data_k=None) == '<td class="number">x</td>'
    assert tag("img", src="data:,") == '<img src="data:,">'


def test_a_page_forbids_every_request():
    parsed = Page(page(BAD, tag("p", "x")))
    policy = [g["content"] for _, g in parsed.tags if g.get("http-equiv")]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert not any(name == "script" for name, _ in parsed.tags)


def drawn(name="one") -> Html:
    lines = [Curve("<A>", [1, 2], [3.0, 4.0], SERIES[0], level=1.0), Curve("B", [1], [2.0])]
    return inline_svg(curves(lines, "per cent", mark=2), name, BAD)


def test_a_figure_takes_the_colours_of_the_page_and_names_no_host():
    text = drawn()
    assert "http" not in text
    assert "<style" not in text
    assert "var(--series-0)" in text
    assert "#0102" not in text
    parsed = Page(text)
    assert "<A>" in parsed.text
    assert parsed.tags[0][1]["aria-label"] == BAD


def test_figures_are_the_same_every_time_and_share_no_id():
    assert drawn() == drawn()
    Page(drawn("one") + drawn("two")).assert_ids_are_unique()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[1.0, 1.0], [-1.0, 1.0], [0.2, 0.3]])
def test_a_histogram_of_any_values(values):
    pairs = np.array(values, np.float32)
    text = inline_svg(histogram(pairs, pairs), "pairs", "x")
    assert "var(--right)" in text
    assert "var(--wrong)" in text
    assert "nan" not in text


def test_curves_do_not_touch_the_state_of_pyplot():
    assert isinstance(curves([Curve("", [1, 2], [1.0, 2.0])], "loss"), Figure)
