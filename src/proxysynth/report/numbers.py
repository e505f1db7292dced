"""Names used inside the report."""

from proxysynth.formatting import (
    and_join as listed,
    count,
    duration,
    metric_heading as heading,
    metric_keys as measures,
    metric_name as name,
    percent,
    points,
)

__all__ = ["count", "duration", "heading", "listed", "measures", "name", "percent", "points"]
