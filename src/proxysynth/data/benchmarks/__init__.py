"""The paper's data sets in their published layouts."""

from .catalogue import CATALOGUE, Benchmark, catalogue
from .opening import open_benchmark

__all__ = ["CATALOGUE", "Benchmark", "catalogue", "open_benchmark"]
