"""From a folder of images to a search: indexes, exact and approximate search, export."""

from proxysynth.search.index import Hit, Index
from proxysynth.search.model import open_model

__all__ = ["Hit", "Index", "open_model"]
