"""The paper's printed numbers: one CSV per table in `numbers/`, as printed, with notes.

`numbers/conventional.csv` holds Tables F, H, J and L, `numbers/mlrc.csv` Tables G, I and K. Tables
4 and 6, which repeat part of them, have their own files so that a test can compare the two.
`numbers/released.csv` holds what the authors' repository reports over eight runs. The column `note`
says where the paper contradicts itself.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

Printed = tuple[dict[str, str], ...]


@cache
def printed(name: str) -> Printed:
    """The rows of `numbers/NAME.csv`, as text."""
    text = (files(__package__) / "numbers" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache  # a page asks for thousands of numbers
def rows_of(name: str, **keys: str) -> Printed:
    """The rows with these field values."""
    wanted = keys.items()
    return tuple(row for row in printed(name) if all(row[field] == text for field, text in wanted))


def number(name: str, field: str = "value", **keys: str) -> float | None:
    """The printed number with these keys; None where the paper prints a dash or nothing."""
    found = rows_of(name, **keys)
    if len(found) > 1:
        raise ValueError(f"{name} has {len(found)} rows for {keys}, expected one: give more keys")
    return float(found[0][field]) if found and found[0][field] else None


def notes_of(name: str, **keys: str) -> tuple[str, ...]:
    """The notes on these rows, each once."""
    return tuple(dict.fromkeys(row["note"] for row in rows_of(name, **keys) if row["note"]))
