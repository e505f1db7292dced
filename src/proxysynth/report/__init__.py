"""What a person sees of runs: the report of one, and several side by side."""

from .comparison import Comparison, compare
from .comparison_page import write_comparison
from .finished_run import FinishedRun, read_finished
from .report import Report, make_report
from .report_page import write_report
from .terminal import render_terminal

__all__ = [
    "Comparison",
    "FinishedRun",
    "Report",
    "compare",
    "make_report",
    "read_finished",
    "render_terminal",
    "write_comparison",
    "write_report",
]
