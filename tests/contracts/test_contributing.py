"""The files that CONTRIBUTING.md and ARCHITECTURE.md name exist, and the lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxysynth as ps
from proxysynth.cli.parser import CHOICES
from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.benchmarks.readers import READERS
from proxysynth.models.backbones import BACKBONES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "proxysynth"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:src|tests|docs|results)/[\w/.]*)`", TEXT)))


@pytest.mark.parametrize("path", NAMED)
def test_a_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


def _recipes() -> dict[str, set[str]]:
    """The files that each recipe names."""
    text = TEXT.partition("## How to add")[2].partition("\n## ")[0]
    parts = re.split(r"^\*\*an? (\w+)\*\*$", text, flags=re.M)
    named = (set(re.findall(r"`((?:src|tests|docs)/[\w/.]*)`", part)) for part in parts[2::2])
    return dict(zip(parts[1::2], named, strict=True))


def test_every_recipe_names_files() -> None:
    assert list(_recipes()) == ["loss", "regularizer", "backbone", "dataset", "metric"]
    assert all(any(file.startswith("src/") for file in files) for files in _recipes().values())


@pytest.mark.parametrize(
    ("recipe", "kinds"), [("loss", ps.LOSSES), ("regularizer", ps.REGULARIZERS)]
)
def test_a_recipe_names_every_file_with_a_list(recipe: str, kinds: dict[str, type]) -> None:
    """A file that has all the keys, or all the classes, has to be changed for a new one."""
    keys = [f'"{name}"' for name in kinds if name != "none"]
    classes = [kind.__name__ for kind in kinds.values() if kind is not None]
    lists = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*.py")
        if PACKAGE / "paper" not in path.parents  # only what the paper has
        and any(all(word in path.read_text() for word in words) for words in (keys, classes))
    }
    named = {file for file in _recipes()[recipe] if file.endswith(".py") and file.startswith("src")}
    only_read = {"src/proxysynth/interfaces.py", "src/proxysynth/losses/functional.py"}
    assert lists == named - only_read


def test_the_named_tests_run_over_all_backbones() -> None:
    tests = [file for file in _recipes()["backbone"] if file.startswith("tests/")]
    assert tests
    assert all("BACKBONES" in (ROOT / file).read_text() for file in tests)


@pytest.mark.parametrize("name", CATALOG)
def test_every_file_of_the_recipe_has_every_dataset(name: str) -> None:
    benchmarks = PACKAGE / "data" / "benchmarks"
    assert f"[{name}]" in (benchmarks / "catalog.toml").read_text()
    assert f'"{name}"' in (benchmarks / "readers.py").read_text()
    assert name in (ROOT / "tests/benchmark_imitations.py").read_text()


@pytest.mark.parametrize("key", ["r_precision", "map@r"])
def test_every_file_of_the_recipe_has_every_metric(key: str) -> None:
    files = {file for file in _recipes()["metric"] if Path(file).suffix}
    tables = {f"src/proxysynth/{name}.py" for name in ("retrieval/metrics", "formatting")}
    tables |= {"docs/notation.md", "tests/retrieval/test_metrics.py"}
    assert tables <= files
    assert all(key in (ROOT / file).read_text() for file in tables)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_is_documented(name: str) -> None:
    assert "docs/backbones.md" in _recipes()["backbone"]
    assert f"`{name}`" in (ROOT / "docs/backbones.md").read_text()


def test_the_command_line_knows_every_loss_and_regularizer() -> None:
    assert tuple(ps.LOSSES) == CHOICES["LOSS"]
    assert tuple(ps.REGULARIZERS) == CHOICES["REGULARIZER"]


def test_every_dataset_has_a_reader() -> None:
    assert set(CATALOG) == set(READERS)


def test_the_tree_of_the_architecture_is_the_one_on_disk() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2].split("```")[1]
    folders = {path.name for path in (ROOT / "src/proxysynth").iterdir() if path.is_dir()}
    missing = [name for name in folders - {"__pycache__"} if f"{name}/" not in tree]
    assert not missing
