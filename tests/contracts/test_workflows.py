"""The workflows and templates of .github and the pre-commit hooks are well-formed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_complete(path: Path) -> None:
    workflow = read(path)
    assert {"name", True, "permissions", "jobs"} <= workflow.keys()  # YAML reads `on` as True
    assert workflow["permissions"] == {"contents": "read"}, "jobs ask for more where they need it"
    for job in workflow["jobs"].values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= workflow["jobs"].keys()
        if "uses" in job:  # another workflow
            assert (ROOT / job["uses"]).is_file()
            continue
        assert job["runs-on"]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@v1"))


def test_every_supported_python_is_tested() -> None:
    tested = read(ROOT / ".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert tested["python"] == classifiers


def test_a_release_is_tested_and_published_without_a_stored_token() -> None:
    path = ROOT / ".github/workflows/release.yml"
    publish = read(path)["jobs"]["publish"]
    assert "secrets." not in path.read_text()
    assert publish["permissions"] == {"id-token": "write"}
    assert "tests" in publish["needs"]
    assert "workflow_call" in read(ROOT / ".github/workflows/tests.yml")[True]


def test_the_hooks_are_those_of_the_linters() -> None:
    hooks = [
        hook["id"]
        for repo in read(ROOT / ".pre-commit-config.yaml")["repos"]
        for hook in repo["hooks"]
    ]
    assert {"ruff", "ruff-format", "nbstripout", "mypy"} <= set(hooks)


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_an_issue_form_has_fields(name: str) -> None:
    form = read(ROOT / ".github/ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"]
    assert all(field["type"] in ("textarea", "input") for field in form["body"])
