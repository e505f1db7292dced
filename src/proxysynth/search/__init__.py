"""From a folder of images to a search: indexes, exact and approximate search, export."""

from .index import Hit, Index
from .model import open_model

__all__ = ["Hit", "Index", "open_model"]
