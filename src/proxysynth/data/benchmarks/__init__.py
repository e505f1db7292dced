"""The paper's datasets in their published layouts."""
