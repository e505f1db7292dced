"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import proxysynth as ps

CONTRACT = [
    "LOSSES", "REGULARIZERS", "ProxySynthesis", "NormSoftmax", "ProxyHead", "synthesize_over",
    "evaluate", "Run", "train", "load", "build_index", "Index", "export",
]  # fmt: skip


@pytest.mark.parametrize("name", ps.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(ps, name) is not None


def test_dir_shows_public_names_only() -> None:
    shown = set(dir(ps))
    assert set(CONTRACT) <= shown
    assert "web" in shown
    assert not {name for name in shown if name.startswith("_")} - {"__version__"}
    assert not shown & {"importlib", "annotations", "TYPE_CHECKING", "Any"}


def test_a_subpackage_is_imported_on_first_use() -> None:
    code = "import proxysynth as ps; print(ps.losses.LOSSES is ps.LOSSES)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NormSoftmx"):
        _ = ps.NormSoftmx
