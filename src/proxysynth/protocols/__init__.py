"""Protocols: how a trained model is measured."""

from proxysynth.protocols.conventional import Conventional, own_splits

__all__ = ["Conventional", "own_splits"]
