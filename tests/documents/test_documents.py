"""Python blocks of the documents run, tables are those of the results, the API page is complete."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import proxysynth as ps
from documents.pages import DOCUMENTS, ROOT, blocks, scripts

BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")
    for path in DOCUMENTS
    for number, block in enumerate(blocks(path, "python"))
    if block not in scripts(path).values()  # test_commands.py runs these
]


@pytest.mark.parametrize("block", BLOCKS)
def test_code_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["document"])
    code = compile(block, "document", "exec")
    exec(code, {"__name__": "__main__"})
    assert code.co_names, "a block with nothing in it"


@pytest.mark.parametrize(
    "script", ["make_tables", "make_results", "make_scale_tables", "make_growth_tables"]
)
def test_tables_match_results(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--check"])
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    runpy.run_path(str(ROOT / "docs" / f"{script}.py"), run_name="__main__")


def test_every_public_name_is_in_the_reference() -> None:
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    names = {name for page in hooks["API"] for name in hooks["described"](page)}
    names |= {name.rpartition(".")[2] for further in hooks["FURTHER"].values() for name in further}
    assert set(ps.__all__) - names == {"__version__"}
