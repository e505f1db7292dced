"""Every command in the documents runs: blocks of bash from top to bottom, as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents.pages import DOCUMENTS, ROOT, blocks, scripts
from documents.smaller import PROGRAMS
from proxysynth.training import Run, train
from training.tiny_pictures import pictures

TAKES_MINUTES = {"distributed.md", "mlrc.md", "paper.md"}


def commands(document: Path) -> str:
    """Its blocks of bash, without the line that runs this suite."""
    return re.sub(r"^.*&& pytest\n", "", "".join(blocks(document, "bash")), flags=re.M)


def steps(document: Path) -> set[str]:
    """Its commands one by one, without those that install."""
    lines = commands(document).replace(" && ", "\n").splitlines()
    return {line for line in lines if not line.startswith("pip ")}


def not_run_yet(document: Path) -> str:
    """Its commands; where the README has the same steps, only those that install."""
    script, readme = commands(document), ROOT / "README.md"
    if document == readme or not steps(document) <= steps(readme):
        return script
    return "\n".join(line for line in script.splitlines() if line.startswith("pip "))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """a run on photographs, for documents that begin with one."""
    base = tmp_path_factory.mktemp("trained")
    data = str(pictures(base / "photos"))
    train(Run(data=data, epochs=1, dim=8, width=0.25, batch_size=8, image_size=32), base / "run")
    return base / "run"


@pytest.fixture(scope="module")
def fork_server(trained: Path) -> Iterator[str]:
    """The address of the process that runs the commands."""
    # A socket's address is at most 108 characters long.
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        script = Path(__file__).with_name("fork_server.py")
        server = subprocess.Popen(
            [sys.executable, str(script), address], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield address
        server.kill()
        server.wait()


@pytest.fixture
def reader(tmp_path: Path, trained: Path, fork_server: str, monkeypatch) -> Path:
    """A folder with what the documents speak of, and small programs under their usual names."""
    for name in ("photos", "pictures", "new_photos", "path/to/images"):
        pictures(tmp_path / name, classes=8)
    shutil.copy(tmp_path / "photos/class0/0.png", tmp_path / "photo.jpg")
    shutil.copytree(trained, tmp_path / "runs" / "shop")
    monkeypatch.setenv("FORK_SERVER", fork_server)
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        line = shlex.join([sys.executable, str(Path(__file__).parent / "smaller.py"), name])
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            path,
            id=str(path.relative_to(ROOT)),
            marks=[pytest.mark.slow] if path.name in TAKES_MINUTES else [],
        )
        for path in DOCUMENTS
        if commands(path) or scripts(path)
    ],
)
@pytest.mark.timeout(900)
def test_document_commands_run(document: Path, reader: Path) -> None:
    script = not_run_yet(document)
    if "curl" in script and not shutil.which("curl"):
        pytest.skip("there is no curl here")
    if "--out runs/shop" in script:
        shutil.rmtree(reader / "runs" / "shop")
    for name, block in scripts(document).items():
        assert Path(name).stem in script, f"no command runs {name}"
        (reader / name).write_text(block)
    paths = {"PATH": f"{reader / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-ex", "-c", script + "\nwait"],
        cwd=reader,
        env=os.environ | paths,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=840)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # and the server that it left
    assert shell.returncode == 0, output
