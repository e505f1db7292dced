"""Puts the tables of README.md together from results/*.csv: `python docs/make_tables.py`.

A table stands between <!-- NAME --> and <!-- /NAME -->. Nothing there is typed; what was not
measured is a dash. With --check nothing is written, and a table that is not up to date is an error.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
METHODS = {
    "plain": "Norm-softmax, plain",
    "pytorch-metric-learning": "Norm-softmax, pytorch-metric-learning",
    "authors' formulation": "with Proxy Synthesis, authors' formulation",
    "fused": "**with Proxy Synthesis, fused (ours)**",
}


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file in results/; none if it was never made."""
    path = ROOT / "results" / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cell(value: str | None, digits: int = 2) -> str:
    return f"{float(value):.{digits}f}" if value else "–"


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def source(found: list[dict[str, str]]) -> str:
    if not found:
        return "Not measured yet."
    first = found[0]
    return f"{first['machine']}, torch {first['torch']}, {first['date']}, commit {first['commit']}."


def speed() -> str:
    """A step of the loss, relative to the plain one, on one thread."""
    found = [row for row in rows("bench_step") if row["threads"] == "1"]
    classes = sorted({int(row["classes"]) for row in found})
    times = {(row["method"], int(row["classes"])): row["of_plain"] for row in found}
    memory = rows("bench_memory")
    most = max((int(row["classes"]) for row in memory), default=0)
    extra = {row["method"]: row["of_plain"] for row in memory if int(row["classes"]) == most}
    head = ["", *(f"{c:,} classes" for c in classes), f"memory, {most:,} classes"]
    body = [
        [label, *(cell(times.get((method, c))) for c in classes), cell(extra.get(method))]
        for method, label in METHODS.items()
    ]
    told = (
        "Forward and backward of one step, batch 128, 512 dimensions, one thread; time and peak "
        "extra memory relative to Norm-softmax written with `normalize` and `cross_entropy` "
    )
    return f"{told}(`proxysynth bench step memory`):\n\n{table(head, body)}\n\n{source(found)}"


def neighbours() -> str:
    """Evaluation against its peers."""
    found = [row for row in rows("bench_neighbours") if row.get("times_ours")]
    body = [
        [row["method"], f"{int(row['pictures']):,}", row["per_class"], cell(row["seconds"]),
         cell(row["times_ours"])]
        for row in found
    ]  # fmt: skip
    head = [
        "evaluation of embeddings of 512 dimensions",
        "pictures",
        "per class",
        "seconds",
        "times ours",
    ]
    return f"`proxysynth bench neighbours`:\n\n{table(head, body)}\n\n{source(found)}"


TABLES = {"speed": speed, "neighbours": neighbours}


def main() -> None:
    path = ROOT / "README.md"
    text = path.read_text()
    made = text
    for name, function in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        made = pattern.sub(lambda m, f=function: f"{m[1]}{f()}\n{m[2]}", made)  # type: ignore[misc]
    if "--check" in sys.argv:
        if made != text:
            sys.exit("README.md is not up to date: run python docs/make_tables.py")
    else:
        path.write_text(made)


if __name__ == "__main__":
    main()
