"""results/paper_small: what is committed is what its CSV files say."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from paper.conftest import TABLES
from proxysynth.paper.artifact import Table
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.store import Store

SCRIPT = Path(__file__).parents[2] / "docs" / "make_paper_page.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_paper_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", TABLES)
def test_rebuilt_tables_match_committed_differences_and_verdicts(
    name: str, script: Any, tmp_path: Path
) -> None:
    empty = load_artifacts([name])[name](script.SCALE, Store(tmp_path, read_only=True))
    assert isinstance(empty, Table)
    table = script.filled(name, empty)
    cells: dict[tuple[str, str], Any] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            cells.setdefault((" | ".join(row.labels), column.name), cell)
    headings = {column.name: column.ours for column in reversed(table.columns)}
    for line in script.rows(name):
        assert line["ran_on"] in ("", headings[line["column"]])
        cell = cells[line["row"], line["column"]]
        assert cell.verdict == line["verdict"], line
        change = "" if cell.difference is None else f"{cell.difference:.6g}"
        assert change == line["change"] or float(change) == pytest.approx(
            float(line["change"]), abs=2e-4
        )
        assert ("" if cell.paper is None else f"{cell.paper:g}") == line["paper"]


def test_committed_page_and_claims_match_the_script(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = script.FOLDER
    made = shutil.copytree(committed, tmp_path / "made")
    monkeypatch.setattr(script, "FOLDER", made)
    script.main()
    for name in ("paper.html", "claims.md", "table6.md"):
        assert (made / name).read_bytes() == (committed / name).read_bytes(), name


def test_page_has_no_broken_links(script: Any) -> None:
    text = (script.FOLDER / "paper.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    links = re.findall(r'href="([^"]+)"', text)
    assert len(links) > 50
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert text.index('id="findings"') < text.index('id="contents"') < text.index('id="claims"')
    assert 'src="data:' in text
