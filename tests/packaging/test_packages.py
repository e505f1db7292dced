"""The wheel and the sdist: what they contain, and that the wheel works without the repository."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["split.train_classes=6", "split.test_classes=5", "split.faces_per_class=6", "dim=8"]


def run(*command: str | Path, folder: Path) -> str:
    # PYTHONPATH would lead back to the repository.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, folder=out)
    return out


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (found,) = packages.glob("*.whl")
    return found


def test_wheel_contains_only_package_and_data(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (ROOT / "src" / "proxysynth").rglob("*")
    kept = {path.relative_to(ROOT / "src").as_posix() for path in files if path.is_file()}
    assert packed == {name for name in kept if "__pycache__" not in name}
    assert {Path(name).suffix for name in packed} >= {".html", ".css", ".js", ".csv", ".typed"}


def test_sdist_contains_only_sources(packages: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {
        "src", "pyproject.toml", "README.md", "PYPI.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
        "PKG-INFO", ".gitignore",
    }  # fmt: skip


def test_metadata_matches_documented_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    about = email.message_from_bytes(archive.read(name))
    assert about["Requires-Python"] == ">=3.10"
    # PyPI shows the description without the other files of the repository.
    links = re.findall(r"\]\(([^)]*)\)|(?:src|href)=\"([^\"]*)", about.get_payload())
    assert [link for link in links if not "".join(link).startswith("https://")] == []
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "install.md").read_text(), re.M)
    documented = {extra for cell in table for extra in re.findall(r"`(\w+)`", cell)}
    assert documented == set(about.get_all("Provides-Extra", []))


@pytest.mark.slow
def test_installed_wheel_trains(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "env", folder=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    run(*pip, "--no-index", wheel, folder=tmp_path)
    # The dependencies are those of this environment, without its .pth files: they would make the
    # repository importable.
    where = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path
    )
    Path(where.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shown = run(python, "-c", "import proxysynth; print(proxysynth.__file__)", folder=tmp_path)
    assert Path(shown.strip()).is_relative_to(tmp_path)

    settings = [word for setting in SMALL for word in ("--set", setting)]
    program = tmp_path / "env" / "bin" / "proxysynth"
    told = run(
        program, "train", "--epochs", "1", "--out", "run", "--json", *settings, folder=tmp_path
    )
    assert 0 <= json.loads(told.splitlines()[-1])["metrics"]["recall@1"] <= 1
    assert "<html" in (tmp_path / "run" / "report.html").read_text()
    run(program, "paper", "table1", "--scale", "smoke", "--plan", folder=tmp_path)
