"""From a folder of images to a search: indexes, exact and approximate search, export."""

from .build import build_index
from .export import export
from .index import Hit, Index
from .model import open_model

__all__ = ["Hit", "Index", "build_index", "export", "open_model"]
