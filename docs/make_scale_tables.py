"""Generates the tables of docs/scale.md from results/bench_scale*.csv and bench_memory.csv.

    python docs/make_scale_tables.py [--check]

As in make_tables.py, a table goes between <!-- NAME --> and <!-- /NAME -->. Estimated times use the
measured rate; they are a dash until there is one.
"""

from __future__ import annotations

from pathlib import Path

from make_tables import cell, fill, rows, source, table

PAGE = Path(__file__).parent / "scale.md"
DEVICES, CLASSES, DIM = 64, 100_000_000, 256
BATCHES = (256, 4_096, 16_384)


def growth() -> str:
    """Seconds of a step over classes and processes, and their slope."""
    found, slopes = rows("bench_scale"), rows("bench_scale_slope")
    classes = sorted({int(row["classes"]) for row in found})
    seconds = {(row["processes"], int(row["classes"])): row["step_s"] for row in found}
    body = [
        [f"{row['processes']}", *(cell(seconds.get((row["processes"], c)), 3) for c in classes),
         cell(row["loss_slope"]), cell(row["loss_slope_last"])]
        for row in slopes
    ]  # fmt: skip
    head = [
        "processes",
        *(f"{c:,} classes" for c in classes),
        "exponent of the loss",
        f"between {classes[-2]:,} and {classes[-1]:,}" if len(classes) > 1 else "at the end",
    ]
    return f"{table(head, body)}\n\n{source(found)}"


def million() -> str:
    """A million classes on two processes."""
    found = rows("bench_scale_million")
    head = ["optimizer of the proxies", "memory, GB in total", "its state, MB per process",
            "seconds per step", "in the loss", "in the optimizer"]  # fmt: skip
    body = [
        [row["optimizer"], cell(row["peak_gb_together"]), cell(row["state_mb_each"], 1),
         cell(row["step_s"]), cell(row["loss_s"]), cell(row["optimizer_s"])]
        for row in found
    ]  # fmt: skip
    return f"{table(head, body)}\n\n{source(found)}"


def memory() -> str:
    """Megabytes of a step beyond the gradient of the proxies."""
    found = [row for row in rows("bench_memory") if row.get("beyond_gradient_mb")]
    classes = sorted({int(row["classes"]) for row in found})
    beyond = {(row["method"], int(row["classes"])): row["beyond_gradient_mb"] for row in found}
    body = [
        [method, *(_megabytes(beyond.get((method, c))) for c in classes)]
        for method in dict.fromkeys(row["method"] for row in found)
    ]
    head = ["", *(f"{c:,} classes" for c in classes)]
    return f"{table(head, body)}\n\n{source(found)}"


def _megabytes(value: str | None) -> str:
    return f"{float(value):,.0f}" if value else "–"


def hundred_million() -> str:
    """What each of 64 devices holds, computes and exchanges, by the formulas of the page."""
    c, d = CLASSES // DEVICES, DIM
    terms = {
        "proxies, GB": lambda n: 4 * c * d / 1e9,
        "their gradient, GB": lambda n: 4 * c * d / 1e9,
        "Adam's state, GB": lambda n: 8 * c * d / 1e9,
        "row-wise state instead, GB": lambda n: 4 * c / 1e9,
        "product with the classes, teraflop": lambda n: 8 * n * c * d / 1e12,
        "product with synthetic classes, teraflop": lambda n: 8 * n * n * d / 1e12,
        "proxies read and gradient written, GB": lambda n: 3 * 4 * c * d / 1e9,
        "row-wise update, GB moved": lambda n: 4 * 4 * c * d / 1e9,
        "exchanged with other devices, GB": lambda n: 4 * (3 * n * d + n * n + 3 * n) / 1e9,
    }
    body = [[name, *(f"{term(n):.3g}" for n in BATCHES)] for name, term in terms.items()]
    rate = _rate()
    body.append(
        ["**seconds of the loss at the measured rate**",
         *(_three_digits(_teraflop(n, c, d) / rate) if rate else "–" for n in BATCHES)]
    )  # fmt: skip
    note = f"The measured rate: {1e3 * rate:.3g} gigaflop/s for one process." if rate else ""
    head = ["per device, by global batch size", *(f"n = {n:,}" for n in BATCHES)]
    return f"{table(head, body)}\n\n{note}".rstrip()


def _three_digits(value: float) -> str:
    """With three significant digits, without an exponent: 16.9, 271, 1,090."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1_000 else f"{value:.3g}"


def _teraflop(n: int, c: int, d: int) -> float:
    return 8 * n * (c + n) * d / 1e12


def _rate() -> float:
    """Teraflop per second of one process at most classes, with the fewest threads measured."""
    found = [row for row in rows("bench_scale") if row["processes"] == "2"]
    last = max(found, key=lambda row: int(row["classes"]), default=None)
    return float(last["loss_gflop_per_s"]) / 1e3 if last else 0.0


TABLES = {
    "growth": growth,
    "million": million,
    "memory": memory,
    "hundred_million": hundred_million,
}


if __name__ == "__main__":
    fill(PAGE, TABLES)
