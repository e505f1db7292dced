"""The tables of the paper, each a function of results."""
