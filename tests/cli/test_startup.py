"""Startup: listings and help do not import torch, a search imports nothing slow beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LEGACY = Path(__file__).parents[1] / "legacy"
COMMANDS = ("train", "eval", "compare", "mlrc", "paper", "index", "search", "serve", "export",
            "predict", "duplicates", "cluster", "data", "bench")  # fmt: skip
SCRIPT = """
import sys
for library in {libraries!r}:
    __import__(library)
known = set(sys.modules)
from proxysynth.cli import main
for argv in {argvs!r}:
    try:
        main(argv)
    except SystemExit as end:
        assert end.code in (0, None), argv
    found = set({slow!r}) & (set(sys.modules) - known)
    assert not found, (argv, found)
"""


def run(argvs: list[list[str]], slow: tuple[str, ...], libraries: tuple[str, ...] = ()) -> None:
    """The commands import none of `slow`, apart from what these libraries import themselves."""
    script = SCRIPT.format(argvs=argvs, slow=slow, libraries=libraries)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_listings_and_help_do_not_import_torch() -> None:
    argvs = [["--version"], ["--help"], ["data", "list"], ["data", "list", "--json"]]
    argvs += [["paper", "--list"], ["paper", "--list", "--json"]]
    argvs += [[command, "--help"] for command in COMMANDS]
    run(argvs, ("torch", "matplotlib", "scipy"))


def test_search_does_not_import_report_dependencies() -> None:
    picture = next((LEGACY / "photos").rglob("*.*"))
    index, folder = str(LEGACY / "photos.index"), str(LEGACY / "run")
    argv = ["search", index, str(picture), "--run", folder, "--device", "cpu", "--json"]
    slow = ("matplotlib", "scipy", "jinja2", "sqlite3", "fastapi", "pandas", "sklearn")
    run([argv], slow, libraries=("filelock", "numpy", "PIL.Image", "rich.console", "torch"))
