"""Imports go one way; heavy and optional packages are imported only where they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import proxysynth

ROOT = Path(proxysynth.__file__).parent
LAYERS = [
    ("interfaces", "values", "errors", "files", "provenance", "formatting"),
    ("losses",),
    ("regularizers",),
    ("models", "data", "retrieval"),
    ("distributed",),
    ("training",),
    ("protocols",),
    ("paper", "search", "report"),
    ("web",),
    ("cli",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path: Path) -> set[str]:
    """The top parts of our own package that a file imports, lazily or not."""
    here = path.relative_to(ROOT).parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*here[: len(here) - node.level], *(node.module or "").split(".")]
            found.add(parts[0])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proxysynth."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("proxysynth.")]
            found |= {name.split(".")[1] for name in names}
    return found


def test_imports_go_in_one_direction() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part in LEVEL:
            wrong += [f"{path.name}: {part} -> {other}" for other in imported(path)
                      if other != part and LEVEL.get(other, -1) > LEVEL[part]]  # fmt: skip
    assert wrong == []


def test_retrieval_does_not_import_images_or_networks() -> None:
    paths = list((ROOT / "retrieval").rglob("*.py"))
    assert paths
    for path in paths:
        assert imported(path) <= {"retrieval", "values", "interfaces", "errors"}, path


def test_losses_and_regularizers_need_torch_and_numpy_only() -> None:
    allowed = {"torch", "numpy", "proxysynth", *sys.stdlib_module_names}
    for folder in ("losses", "regularizers"):
        paths = list((ROOT / folder).rglob("*.py"))
        assert paths
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                assert {name.split(".")[0] for name in names} <= allowed, path


def test_importing_the_package_is_light() -> None:
    heavy = ["torch", "numpy", "matplotlib", "PIL", "rich", "torchvision", "timm", "sklearn",
             "scipy", "faiss", "pytorch_metric_learning"]  # fmt: skip
    code = f"import sys, proxysynth; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_no_utils_modules() -> None:
    grab_bags = {"utils.py", "common.py", "base.py", "helpers.py"}
    assert not grab_bags & {path.name for path in ROOT.rglob("*.py")}
