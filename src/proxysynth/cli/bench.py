"""`proxysynth bench`: run the measurements in `benchmarks/` of a clone."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import proxysynth
from proxysynth.cli.console import Console, output
from proxysynth.cli.parser import UsageError, usage_errors
from proxysynth.provenance import provenance
from proxysynth.values import look_up


def run_bench(args: argparse.Namespace) -> dict[str, Any]:
    benchmarks = find_benchmarks()
    known = benchmarks.BENCHES
    names = args.names if args.names and "all" not in args.names else list(known)
    with usage_errors():
        for name in names:
            look_up(name, {**known, "all": ""}, "benchmark")
    messages = Console(stderr=True)
    if not args.names:
        messages.print("All benchmarks, about an hour; `proxysynth bench NAME` runs a single one.")
    if args.quick:
        messages.print("--quick only checks that everything works: ignore the timings.")
    rows: list[dict[str, Any]] = []
    for name in names:
        with messages.status(f"bench {name}: {known[name]}; keep the machine otherwise idle"):
            measured = benchmarks.measure(name, quick=args.quick)
        rows += measured
        benchmarks.show(measured, output(args))
        for path in [] if args.save is None else benchmarks.save(measured, args.save):
            messages.print(f"wrote {path}", markup=False)
    return {"rows": rows, **provenance()}


def find_benchmarks() -> ModuleType:
    """The package `benchmarks` of the clone that holds this package or the current folder."""
    for root in (Path(proxysynth.__file__).parents[2], Path.cwd()):
        if (root / "benchmarks" / "__init__.py").is_file() and (root / "pyproject.toml").is_file():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return importlib.import_module("benchmarks")
    raise UsageError("benchmarks are not installed: run `proxysynth bench` in a clone")
