import io

from rich.console import Console

from proxysynth.report.terminal import render_metrics


def test_headings_fit_one_line_of_80_columns():
    metrics = {"accuracy": 0.5, **{f"recall@{k}": 0.9 for k in (1, 2, 4, 8)}}
    metrics |= {"precision@1": 0.9, "r_precision": 0.5, "map@r": 0.4, "queries": 10}
    out = io.StringIO()
    rows = {"trained": metrics, "untrained": metrics}
    render_metrics(rows, "A title", Console(file=out, width=80))
    heading = ["Accuracy", "R@1", "R@2", "R@4", "R@8", "R-prec", "MAP@R"]
    assert heading in [line.split() for line in out.getvalue().splitlines()]
