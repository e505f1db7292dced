"""`proxysynth export`."""

from __future__ import annotations

import argparse
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, usage_errors
from proxysynth.search.export import export
from proxysynth.search.index import Index
from proxysynth.training.inference import Trained, load


def run_export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the file, compare it with the run, and print its input and output shapes."""
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder: give a file such as {args.out / 'model.onnx'}")
    with usage_errors():
        source: Trained | Index
        if args.to in ("onnx", "torch"):
            source = load(args.source, "cpu", backbone=args.backbone, trust=args.trust)
        else:
            source = Index.open(args.source)
        made = export(source, args.to, args.out)
    about = made.about
    if not args.json:
        if isinstance(source, Index):
            text = f"{made.file}: {about['items']:,} embeddings of {about['dim']} dimensions"
        else:
            shapes = f"{tuple(about['input'])} -> {tuple(about['output'])}".replace("'", "")
            text = f"{made.file}: {about['backbone']}, {shapes}; "
            text += f"differs from the run by at most {made.difference:.1e}"
        Console().say(text)
    return {"file": str(made.file), "to": args.to, "difference": made.difference, **about}
