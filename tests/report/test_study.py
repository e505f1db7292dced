"""A study's numbers as they are shown: intervals, tables, figures, page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from scipy import stats

from proxysynth.report.study import amount, mean_and_interval, metric_rows, study_page, trial_rows
from proxysynth.report.terminal import render_study


def made_up(**changes):
    search = [
        {
            "index": i, "params": {"proxy_lr": 0.01 * (i + 1), "loss.scale": 20.0 + i},
            "value": value, "folds": [value] * 4, "pruned": i == 1, "lost": int(i == 2),
            "seconds": 1.0, "note": "",
        }
        for i, value in enumerate((0.5, 0.3, 0.6))
    ]  # fmt: skip
    values = {"precision@1": [0.9, 0.92], "r_precision": [0.6, 0.61], "map@r": [0.5, 0.52]}
    summary = {name: mean_and_interval(each) for name, each in values.items()}
    return {
        "name": "set-cosface-none", "data": "<set>", "loss": "cosface", "regularizer": "none",
        "scale": "small", "trials": 3, "folds": 4, "repetitions": 2, "pruned": 1, "run_again": 1,
        "best": search[2]["params"], "best_trial": 3, "value": 0.6, "at_bounds": [],
        "separated": values, "concatenated": values,
        "summary": {"separated": summary, "concatenated": summary},
        "importance": {"loss.scale": 0.75, "proxy_lr": 0.25},
        "space": [
            {"name": "proxy_lr", "low": 0.001, "high": 0.1, "start": 0.01, "log": True},
            {"name": "loss.scale", "low": 1.0, "high": 100.0, "start": 20.0, "log": True},
        ],
        "search": search, "dim": 128, "backbone": "conv4", "provenance": {"torch": "2"},
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    "values", [[0.5, 0.6], [0.1, 0.2, 0.4], [0.7 + 0.01 * i for i in range(10)]]
)
def test_interval_matches_scipy_t_interval(values):
    found = mean_and_interval(values)
    mean = sum(values) / len(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=stats.sem(values))
    assert found["mean"] == pytest.approx(mean)
    assert found["ci95"] == pytest.approx((high - low) / 2, rel=1e-9)


def test_single_repetition_has_no_interval():
    assert mean_and_interval([0.5]) == {"mean": 0.5, "ci95": None}


def test_text_formatting():
    result = made_up()
    assert amount(result) == "scale small: 3 trials, 1 of them pruned, 4 folds, 2 repetitions"
    assert [row[0] for row in metric_rows(result)] == [
        "separated (128-dim)", "concatenated (512-dim)",
    ]  # fmt: skip
    assert [row[-1] for row in trial_rows(result)[1]] == ["", "pruned", "best, rerun 1 time"]


def test_terminal_shows_result_search_and_importance():
    file = io.StringIO()
    render_study(made_up(), Console(file=file, width=120))
    told = file.getvalue()
    assert "51.00 ± 12.71" in told  # 12.706 x 0.01 / sqrt(2) x sqrt(2)
    assert "512-dim" in told
    assert "best, rerun 1 time" in told
    assert "loss.scale 75%, proxy_lr 25%" in told


def test_study_page_is_complete_and_escaped():
    page = study_page(made_up())
    assert "<set>" not in page
    assert "&lt;set&gt;" in page
    assert page.count("<svg") == 1
    assert "1 of them pruned" in page
    assert "importance, %" in page
    assert "importance" not in study_page(made_up(importance={}))


def test_best_values_at_range_bounds_are_reported():
    result = made_up(at_bounds=["proxy_lr", "loss.scale"])
    file = io.StringIO()
    render_study(result, Console(file=file, width=120))
    for text in (study_page(result), file.getvalue()):
        assert "may lie outside: proxy_lr, loss.scale." in text
    assert "may lie outside" not in study_page(made_up())
