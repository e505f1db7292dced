"""A command in this process, as a person gives it."""

from __future__ import annotations

import pytest

from proxysynth.cli import main


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[object, str, str]:
    """Its exit status, and what it printed to standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return ended.value.code, out, err
