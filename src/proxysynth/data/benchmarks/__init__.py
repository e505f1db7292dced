"""The paper's data sets in their published layouts."""
