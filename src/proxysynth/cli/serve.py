"""`proxysynth serve`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from proxysynth.cli import print_warning
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.errors import import_optional

NEEDED = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")


def run_serve(args: argparse.Namespace) -> dict[str, Any]:
    for package in NEEDED:
        import_optional(package, "serve", "the search page")
    from proxysynth.retrieval.reranking import parse_methods
    from proxysynth.search import Index
    from proxysynth.web.guard import is_loopback
    from proxysynth.web.server import listen, serve, url

    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port must be 0 (any free port) to 65535, got {args.port}")
    if args.json and args.access_log == "-":
        raise UsageError("--json and --access-log - both write to standard output: give a file")
    resources(args)
    with usage_errors():
        index = Index.open(args.index, folder=args.folder)
        if args.rerank is not None:
            parse_methods(args.rerank)
            index.rerank = args.rerank
    bound = listen(args.host, args.port)
    address = url(bound, args.host)
    try:
        index.embedder(args.run, args.device, backbone=args.backbone, trust=args.trust)
    except (ValueError, OSError, RuntimeError) as error:
        # The index itself works: its own images can still be queries.
        print_warning(f"uploads cannot be embedded: {error}")
    if sentence := index.missing_images():
        print_warning(sentence)
    if not is_loopback(args.host):
        print_warning("anyone who can reach this machine can search and see these images")
    print(f"{len(index):,} images at {address} (stop with Ctrl-C)", file=sys.stderr, flush=True)
    options = {"allow_hosts": args.allow_host, "root_path": args.root_path}
    with contextlib.suppress(KeyboardInterrupt), usage_errors():  # the usual way to stop it
        serve(index, bound, args.host, run=args.run, access_log=args.access_log, **options)
    return {"index": str(args.index), "pictures": len(index), "address": address}
