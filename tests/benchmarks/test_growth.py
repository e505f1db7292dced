"""The growth benchmark at a small size."""

from __future__ import annotations

import pytest

from benchmarks import growth


def test_exact_and_larger_rows(monkeypatch) -> None:
    pytest.importorskip("lancedb")
    size = growth.Size((300, 3_000), dimensions=16, latent=4, queries=10, probes=(54,))
    monkeypatch.setattr(growth, "QUICK", size)
    rows = growth.run(quick=True)
    assert [row["items"] for row in rows if row["table"] == "exact"] == [300, 3_000]
    *_, lance = rows
    assert lance["search"].startswith("LanceDB")
    assert lance["recall_at_10"] > 0.9  # every partition is searched
    assert all(row["query_ms"] > 0 for row in rows)
