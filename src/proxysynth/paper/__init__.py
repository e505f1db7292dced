"""The paper's tables and figures: `proxysynth paper`.

A scale turns what the paper trained into Runs that the reader can afford (`scale.py`); a store
trains each Run once (`store.py`); an artifact is a table or a figure of their results, and needs
what it asks the store for (`artifact.py`, `artifacts.py`); `render.py` and `book.py` write it, the
paper's number beside ours.
"""
