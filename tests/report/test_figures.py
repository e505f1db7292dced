"""Figures take the colors of the page, deterministically; templates escape what they are given."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from markupsafe import Markup
from matplotlib.figure import Figure

from proxysynth.report.figures import (
    SERIES,
    Curve,
    curves,
    histogram,
    inline_svg,
    trial_history,
    write_figure,
)
from proxysynth.report.pages import environment
from proxysynth.retrieval.calibration import CELLS, PairCounts, count_pairs
from proxysynth.retrieval.knn import as_sets
from report.made_up_runs import Page
from report.test_study import made_up

BAD = "<script>alert('x')</script> & \"quotes\""
PAGE = environment().from_string(
    """{% extends "base.html" %}{% block title %}{{ text }}{% endblock %}
{% block main %}<p title="{{ text }}">{{ text }}</p>{% endblock %}"""
)


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"))))
def test_text_is_escaped_in_the_page(text):
    parsed = Page(PAGE.render(text=text))
    assert [given["title"] for name, given in parsed.tags if name == "p"] == [text]
    assert "".join(parsed.texts).count(text) >= 1


def test_page_policy_blocks_all_requests():
    parsed = Page(PAGE.render(text=BAD))
    policy = [g["content"] for _, g in parsed.tags if g.get("http-equiv")]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert not any(name == "script" for name, _ in parsed.tags)


def drawn(name="one") -> Markup:
    lines = [Curve("<A>", [1, 2], [3.0, 4.0], SERIES[0], level=1.0), Curve("B", [1], [2.0])]
    return inline_svg(curves(lines, "%", mark=2), name, BAD)


def test_svg_uses_page_colors_and_no_urls():
    text = drawn()
    assert "http" not in text
    assert "<style" not in text
    assert "var(--series-0)" in text
    assert "#0102" not in text
    parsed = Page(text)
    assert "<A>" in parsed.text
    assert parsed.tags[0][1]["aria-label"] == BAD


def test_figures_are_deterministic_with_unique_ids():
    assert drawn() == drawn()
    Page(drawn("one") + drawn("two")).assert_ids_are_unique()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[1.0, 1.0], [-1.0, 1.0], [0.2, 0.3]])
def test_histogram_of_any_values(values):
    counts = np.histogram(values, CELLS, (-1, 1))[0]
    figure = histogram(PairCounts(counts, counts))
    text = inline_svg(figure, "pairs", "x")
    assert "var(--right)" in text
    assert "var(--wrong)" in text
    assert "nan" not in text


def test_every_pair_is_in_the_histogram():
    x = np.random.default_rng(0).normal(size=(40, 6))
    x[1], x[2] = x[0], -x[0]  # similarities of 1 and of -1
    pairs = count_pairs(as_sets(x, np.arange(40) % 5))
    outlines = [patch.get_data() for patch in histogram(pairs).axes[0].patches]
    assert len(outlines) == 4
    assert all(outline.values.sum() == pytest.approx(1) for outline in outlines)
    assert {(o.edges[0], o.edges[-1]) for o in outlines} == {(-1.0, 1.0)}


def test_curves_do_not_use_pyplot_state():
    assert isinstance(curves([Curve("", [1, 2], [1.0, 2.0])], "loss"), Figure)


def test_figures_are_written_as_png_and_svg(tmp_path):
    result = made_up()
    paths = write_figure(trial_history(result["search"]), tmp_path, "history")
    assert sorted(path.name for path in paths) == ["history.png", "history.svg"]
    assert paths[0].read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in paths[1].read_bytes()
