"""Child processes of the programs that kill them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def forked(function: Callable[[], object]) -> int:
    """The process id of a child that calls a function and exits: with 0, or with 1 and a line on
    standard error if the function fails."""
    pid = os.fork()
    if pid:
        return pid
    try:
        function()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
