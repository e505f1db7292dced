"""`proxysynth search`: imports nothing slow but torch."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxysynth.cli.console import Console, output
from proxysynth.cli.parser import resources, usage_errors
from proxysynth.retrieval.calibration import DEFAULT_TARGET
from proxysynth.search.index import Index
from proxysynth.search.index_file import is_index

SHEET = Path("neighbors.html")


def run_search(args: argparse.Namespace) -> dict[str, Any]:
    resources(args)
    messages = Console(stderr=True)
    with usage_errors():
        if args.same and args.threshold is not None:
            raise ValueError("--same has its own threshold: omit --threshold")
        if args.target is not None and not args.same:
            raise ValueError("--target needs --same")
        if any(map(os.path.isdir, args.pictures)):
            raise ValueError("a query must be an image file: for folders, use `predict` or `eval`")
        if not is_index(args.index) and any(map(is_index, args.pictures)):
            raise ValueError("the index comes first: `proxysynth search INDEX IMAGE`")
        index = Index.open(args.index, folder=args.folder)
        if any(index.find(picture) is None for picture in args.pictures):
            index.embedder(args.run, args.device, backbone=args.backbone, trust=args.trust)
        target = args.target or DEFAULT_TARGET
        same_from = index.threshold(target if args.same else None, args.run)
        faiss = index.approximate(messages.say) if args.approximate else None
        threshold = same_from if args.same else args.threshold
        options = {"label": args.label, "rerank": args.rerank, "approximate": args.approximate}
        hits = index.search(args.pictures, args.k, threshold=threshold, **options)
    console = output(args)
    rows = [
        (str(place), f"{hit.similarity:.4f}", hit.label or "", hit.path)
        for place, hit in enumerate(hits, 1)
    ]
    if len(args.pictures) > 1:
        console.say(f"Query: the mean of {len(args.pictures)} images")
    if rows:
        console.columns(("", "similarity", "label", f"in {index.root}"), rows)
    else:
        console.say("No image in the index is that similar.")
    if args.same and same_from is not None:
        made = index.calibration(args.run)
        about = target if made is None else made.about(target)
        console.say(f"Shown: similarity {same_from:.4f} or more ({about}); --target changes this.")
    facts: dict[str, Any] = {
        "index": str(args.index),
        "items": len(index),
        "query": list(args.pictures),
        "threshold": same_from,
        "hits": [
            {
                **asdict(hit),
                "file": str(index.path(hit.number)),
                "same": None if same_from is None else hit.similarity >= same_from,
            }
            for hit in hits
        ],
    }
    if faiss is not None:
        messages.say(faiss.verdict)
        recall = {f"recall@{k}": share for k, share in faiss.recall.items()}
        facts["approximate"] = {**recall, "cells": faiss.cells, "probes": faiss.probes}
    if args.open or args.out is not None:
        from proxysynth.search.contact_sheet import write_contact_sheet  # matplotlib, slow

        sheet = write_contact_sheet(args.out or SHEET, index, args.pictures, hits)
        facts["sheet"] = str(sheet)
        messages.say(f"Contact sheet: {sheet}")
        screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if args.open and (screen or not sys.platform.startswith("linux")):
            webbrowser.open(sheet.resolve().as_uri())
    return facts
