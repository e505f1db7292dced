import io

from rich.console import Console

from proxysynth.report.terminal import render_metrics


def test_headings_are_whole_in_eighty_columns():
    metrics = {"accuracy": 0.5, **{f"recall@{k}": 0.9 for k in (1, 2, 4, 8)}}
    metrics |= {"precision@1": 0.9, "r_precision": 0.5, "map@r": 0.4, "queries": 10}
    out = io.StringIO()
    rows = {"trained": metrics, "untrained": metrics}
    render_metrics(rows, "A title", Console(file=out, width=80))
    words = out.getvalue().split()
    assert "…" not in out.getvalue()
    assert [word for word in words if word.startswith("@")] == ["@1", "@2", "@4", "@8"]
    assert {"Accuracy", "Recall", "precision", "MAP@R"} <= set(words)
