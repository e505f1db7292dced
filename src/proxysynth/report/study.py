"""What a finished study leaves in its folder: `result.json`, `study.html`, figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from proxysynth.files import write_json
from proxysynth.protocols.mlrc import Outcome
from proxysynth.protocols.mlrc.workers import exclusive

from .pages import write_page
from .study_figures import IN_FILE, history, importances, write_figure
from .study_page import study_page
from .study_result import result_of

RESULT, PAGE = "result.json", "study.html"


def write_study(outcome: Outcome, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Write everything that is shown of a study, and return what `result.json` holds.

    Workers that end at the same time write one after the other, and the same.
    """
    place = Path(folder).expanduser()
    result = result_of(outcome)
    with exclusive(place):
        write_figure(history(result["search"], IN_FILE), place, "history")
        if result["importance"]:
            write_figure(importances(result["importance"], IN_FILE), place, "importance")
        write_page(place / PAGE, study_page(result))
        write_json(place / RESULT, result)  # last: it says that the study is over
    return result
