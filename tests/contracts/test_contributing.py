"""The files that CONTRIBUTING.md and ARCHITECTURE.md name exist, and the lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxysynth as ps
from proxysynth.cli.parser import LOSSES, REGULARIZERS
from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.benchmarks.opening import READERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:src|tests|docs|results)/[\w/.]*)`", TEXT)))


@pytest.mark.parametrize("path", NAMED)
def test_a_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_recipe_names_files() -> None:
    recipes = re.split(r"^\*\*an? (\w+)\*\*$", TEXT.partition("## How to add")[2], flags=re.M)
    assert recipes[1::2] == ["loss", "regularizer", "backbone", "dataset", "metric"]
    assert all("`src/" in recipe for recipe in recipes[2::2])


def test_the_command_line_knows_every_loss_and_regularizer() -> None:
    assert tuple(ps.LOSSES) == LOSSES
    assert tuple(ps.REGULARIZERS) == REGULARIZERS


def test_every_dataset_has_a_reader() -> None:
    assert set(CATALOG) == set(READERS)


def test_the_tree_of_the_architecture_is_the_one_on_disk() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2].split("```")[1]
    folders = {path.name for path in (ROOT / "src/proxysynth").iterdir() if path.is_dir()}
    missing = [name for name in folders - {"__pycache__"} if f"{name}/" not in tree]
    assert not missing
