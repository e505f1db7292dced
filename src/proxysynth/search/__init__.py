"""From a folder of pictures to a search: the index, its search, exported models, the web page."""

from .index import Hit, Index

__all__ = ["Hit", "Index"]
