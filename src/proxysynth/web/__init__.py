"""The search service: a JSON API and one page over an index. Needs the extra `serve`."""

from .app import create_app

__all__ = ["create_app"]
