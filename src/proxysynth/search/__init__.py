"""From a folder of pictures to a search: the index, its search, exported models, the web page."""

from .build_index import build_index
from .export import export
from .index import Hit, Index

__all__ = ["Hit", "Index", "build_index", "export"]
