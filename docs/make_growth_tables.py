"""Generates the tables of docs/grow.md from results/bench_growth_*.csv.

python docs/make_growth_tables.py [--check]
"""

from __future__ import annotations

from pathlib import Path

from make_tables import cell, fill, rows, source, table

PAGE = Path(__file__).parent / "grow.md"


def exact() -> str:
    """Exact search over the number of items."""
    found = rows("bench_growth_exact")
    head = ["images", "embeddings, GB", "one query, ms", "eight together, ms",
            "queries per second"]  # fmt: skip
    body = [
        [f"{int(row['items']):,}", cell(row["gigabytes"]), cell(row["query_ms"], 1),
         cell(row["batch_ms"], 1), f"{float(row['queries_per_second']):,.0f}"]
        for row in found
    ]  # fmt: skip
    return f"{table(head, body)}\n\n{source(found)}"


def larger() -> str:
    """LanceDB against exact search."""
    found = rows("bench_growth_larger")
    head = ["search", "images", "one query, ms", "recall@10, %", "on disk or in memory, GB",
            "export, CPU s", "fill and index, CPU s"]  # fmt: skip
    body = [
        [row["search"], f"{int(row['items']):,}", cell(row["query_ms"], 1),
         cell(100 * float(row["recall_at_10"]), 1), cell(row["gigabytes"]),
         cell(row.get("export_cpu_seconds"), 0), cell(row.get("build_cpu_seconds"), 0)]
        for row in found
    ]  # fmt: skip
    return f"{table(head, body)}\n\n{source(found)}"


if __name__ == "__main__":
    fill(PAGE, {"exact": exact, "larger": larger})
