"""The search service: a JSON API and a page over an index. Needs the `serve` extra."""

from proxysynth.web.app import create_app

__all__ = ["create_app"]
