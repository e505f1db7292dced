"""`proxysynth compare`."""

from __future__ import annotations

import argparse
from typing import Any

from proxysynth.cli.console import Console, output
from proxysynth.cli.parser import usage_errors
from proxysynth.report import compare, render_comparison, write_comparison


def run_compare(args: argparse.Namespace) -> dict[str, Any]:
    with usage_errors():
        comparison = compare(args.runs)
    render_comparison(comparison, output(args))
    result = comparison.to_json()
    if args.out is not None:
        result["page"] = str(write_comparison(comparison, args.out))
        Console(stderr=True).say(f"Page: {result['page']}")
    return result
