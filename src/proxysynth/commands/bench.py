"""`proxysynth bench`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from proxysynth.bench import BENCHES, measure
from proxysynth.bench.show import save, show
from proxysynth.options import UsageError
from proxysynth.provenance import provenance
from proxysynth.values import nearest


def run_bench(args: argparse.Namespace) -> dict[str, Any]:
    """Tables on standard output, CSV files if asked for."""
    names = list(BENCHES) if "all" in args.names else args.names
    for name in names:
        if name not in BENCHES:
            raise UsageError(f"unknown bench {name!r}: {nearest(name, [*BENCHES, 'all'])}")
    told = Console(stderr=True)
    rows = []
    for name in names:
        with told.status(f"bench {name}: {BENCHES[name]}; leave the machine alone meanwhile"):
            made = measure(name, quick=args.quick)
        rows += made
        if not args.json:
            show(made, Console())
        if args.save is not None:
            for path in save(made, args.save):
                told.print(f"wrote {path}", markup=False)
    return {"rows": rows, **provenance()}
