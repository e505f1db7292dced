"""Reports for people: of a run, of several runs compared, of a study."""

from proxysynth.report.comparison import Comparison, compare, write_comparison
from proxysynth.report.run_report import FinishedRun, read_finished, write_report
from proxysynth.report.terminal import render_comparison

__all__ = [
    "Comparison",
    "FinishedRun",
    "compare",
    "read_finished",
    "render_comparison",
    "write_comparison",
    "write_report",
]
