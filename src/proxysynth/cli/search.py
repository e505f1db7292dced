"""`proxysynth search`."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import resources, usage_errors
from proxysynth.search.index import Hit, Index

SHEET = Path("neighbours.html")


def run_search(args: argparse.Namespace) -> dict[str, Any]:
    """Find the nearest images, print them, and write a contact sheet on request."""
    resources(args, set_threads=True)
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
        if args.same and same_from is not None:
            Console().say(
                f"Only images of similarity {same_from:.4f} or more are taken to be of the same "
                f"class ({args.target}); --target sets another threshold."
            )
    if args.open or args.out is not None:
        from proxysynth.search.contact_sheet import write_contact_sheet  # matplotlib, slow

        sheet = write_contact_sheet(args.out or SHEET, index, args.pictures, hits)
        facts["sheet"] = str(sheet)
        messages.say(f"Contact sheet: {sheet}")
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
    faiss = index.approximate(messages.say)
    hits = index.search(args.pictures, args.k, **filters, approximate=True)
    messages.say(faiss.verdict)
    recall = {f"recall@{k}": share for k, share in faiss.recall.items()}
    return hits, {"approximate": {**recall, "cells": faiss.cells, "probes": faiss.probes}}


def _facts(index: Index, hit: Hit, same_from: float | None) -> dict[str, Any]:
    same = None if same_from is None else hit.similarity >= same_from
    return {**asdict(hit), "file": str(index.path(hit.number)), "same": same}


def _show(index: Index, hits: Sequence[Hit], console: Console) -> None:
    if not hits:
        console.say("No image in the index is that similar.")
        return
    labeled = any(hit.label is not None for hit in hits)
    headings: dict[str, Any] = {"": "right", "similarity": "right"}
    headings |= {"label": "left"} if labeled else {}
    headings[f"in {index.root}"] = "left"
    rows = [
        (str(place), f"{hit.similarity:.4f}", *([hit.label or ""] if labeled else []), hit.path)
        for place, hit in enumerate(hits, 1)
    ]
    console.columns(headings, rows)


def _has_display() -> bool:
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True
