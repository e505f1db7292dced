"""`proxysynth search`."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table

from proxysynth.cli.console import Console
from proxysynth.cli.parser import resources, usage_errors
from proxysynth.formatting import printable
from proxysynth.search.index import Hit, Index

SHEET = Path("neighbours.html")


def run_search(args: argparse.Namespace) -> dict[str, Any]:
    """Find the nearest images, print them, and write a contact sheet on request."""
    resources(args)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    messages = Console(stderr=True)
    with usage_errors():
        index = Index.open(args.index, folder=args.folder)
        if any(index.find(picture) is None for picture in args.pictures):
            index.embedder(args.run, args.device, backbone=args.backbone, trust=args.trust)
        hits, approximate = _hits(args, index, messages)
        same_from = index.threshold(args.target if args.same else None, args.run)
    facts: dict[str, Any] = {
        "index": str(args.index),
        "items": len(index),
        "query": list(args.pictures),
        "threshold": same_from,
        "hits": [_facts(index, hit, same_from) for hit in hits],
        **approximate,
    }
    if not args.json:
        _show(index, hits, Console())
    if args.open or args.out is not None:
        from proxysynth.search.contact_sheet import write_contact_sheet  # matplotlib, slow

        sheet = write_contact_sheet(args.out or SHEET, index, args.pictures, hits)
        facts["sheet"] = str(sheet)
        messages.print(f"Contact sheet: {sheet}", markup=False, highlight=False, soft_wrap=True)
        if args.open and _has_display():
            webbrowser.open(sheet.resolve().as_uri())
    return facts


def _hits(
    args: argparse.Namespace, index: Index, messages: Console
) -> tuple[list[Hit], dict[str, Any]]:
    threshold = args.threshold
    if args.same:
        if threshold is not None:
            raise ValueError("--same has its own threshold: omit --threshold")
        threshold = index.threshold(args.target, args.run)
    filters = {"threshold": threshold, "label": args.label, "rerank": args.rerank}
    if not args.approximate:
        return index.search(args.pictures, args.k, **filters), {}
    faiss = index.approximate(lambda text: messages.print(text, markup=False, soft_wrap=True))
    hits = index.search(args.pictures, args.k, **filters, approximate=True)
    messages.print(faiss.verdict, markup=False, highlight=False, soft_wrap=True)
    recall = {f"recall@{k}": share for k, share in faiss.recall.items()}
    return hits, {"approximate": {**recall, "cells": faiss.cells, "probes": faiss.probes}}


def _facts(index: Index, hit: Hit, same_from: float | None) -> dict[str, Any]:
    file = str(index.path(hit.number))
    return {
        "number": hit.number,
        "path": hit.path,
        "file": file,
        "label": hit.label,
        "similarity": hit.similarity,
        "same": None if same_from is None else hit.similarity >= same_from,
    }


def _show(index: Index, hits: Sequence[Hit], console: Console) -> None:
    if not hits:
        console.print("No picture in the index is that similar.")
        return
    table = Table(box=box.SIMPLE)
    table.add_column("", justify="right")
    table.add_column("similarity", justify="right")
    labelled = any(hit.label is not None for hit in hits)
    if labelled:
        table.add_column("label", overflow="fold")
    table.add_column(f"in {printable(str(index.root))}", overflow="fold")
    for place, hit in enumerate(hits, 1):
        label = [printable(hit.label or "")] if labelled else []
        table.add_row(str(place), f"{hit.similarity:.4f}", *label, printable(hit.path))
    console.print(table, markup=False)


def _has_display() -> bool:
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True
