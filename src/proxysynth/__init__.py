"""Proxy Synthesis over any proxy-based loss, for embeddings that serve unseen classes."""

__version__ = "0.1.0"
