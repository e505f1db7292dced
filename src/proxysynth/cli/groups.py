"""`proxysynth duplicates` and `proxysynth cluster`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import usage_errors
from proxysynth.formatting import count
from proxysynth.search.groups import agreement, cluster_index, find_duplicates, write_sheets
from proxysynth.search.index import Hit, Index

SHOWN = 20  # groups listed in the terminal
MEMBERS = 5  # images listed of each


def run_duplicates(args: argparse.Namespace) -> dict[str, Any]:
    """Print groups of near-duplicates, and write a contact sheet on request."""
    with usage_errors():
        index = Index.open(args.index)
        groups = find_duplicates(index, args.threshold)
    images = sum(map(len, groups))
    sheet = None
    if args.out is not None:
        from proxysynth.report.pages import write_page
        from proxysynth.search.contact_sheet import Section, sheet as make_sheet

        sections = [Section(count(len(group), "image"), group) for group in groups]
        lead = (
            f"{count(len(groups), 'group')} of similarity {args.threshold:g} or more, by "
            f"{index.model.name}."
        )
        sheet = write_page(args.out, make_sheet(index, "Near-duplicates", lead, sections))
    if not args.json:
        console = Console()
        total = f"{count(images, 'image')} of {len(index):,} in {count(len(groups), 'group')}"
        console.say(f"Near-duplicates: {total}")
        for number, group in enumerate(groups[:SHOWN], 1):
            console.say(f"group {number}: {count(len(group), 'image')}")
            _show(group, console)
        if len(groups) > SHOWN:
            console.say(f"... and {len(groups) - SHOWN:,} more groups; --json lists all of them")
        if sheet is not None:
            console.say(f"Contact sheet: {sheet}")
    return {
        "index": str(args.index),
        "items": len(index),
        "threshold": args.threshold,
        "groups": [[asdict(hit) for hit in group] for group in groups],
        "duplicates": images - len(groups),
        "sheet": None if sheet is None else str(sheet),
    }


def run_cluster(args: argparse.Namespace) -> dict[str, Any]:
    """Print the clusters, and write contact sheets on request."""
    with usage_errors():
        index = Index.open(args.index)
        clusters = cluster_index(index, args.method, k=args.k, least=args.min_size, seed=args.seed)
        nmi = agreement(index, clusters)
    sheets = [] if args.out is None else write_sheets(args.out, index, clusters)
    if not args.json:
        console = Console()
        for cluster in clusters[:SHOWN]:
            console.say(cluster.title)
            _show(cluster.images, console)
        if len(clusters) > SHOWN:
            console.say(f"... and {len(clusters) - SHOWN:,} more; --json lists all of them")
        if nmi is not None:
            console.say(f"NMI of clusters and labels: {100 * nmi:.1f} %")
        if sheets:
            console.say(f"Contact sheets: {sheets[0]}")
    return {
        "index": str(args.index),
        "items": len(index),
        "method": args.method,
        "clusters": [
            {
                "number": cluster.number,
                "label": None if cluster.label is None else cluster.label[0],
                "images": [asdict(hit) for hit in cluster.images],
            }
            for cluster in clusters
        ],
        "nmi": nmi,
        "sheets": [str(path) for path in sheets],
    }


def _show(images: list[Hit], console: Console) -> None:
    for hit in images[:MEMBERS]:
        console.say(f"  {hit.similarity:.4f}  {hit.path}")
    if len(images) > MEMBERS:
        console.say(f"  ... and {len(images) - MEMBERS:,} more")
