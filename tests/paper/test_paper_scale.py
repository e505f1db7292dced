"""The paper's own scale, end to end: imitations of the benchmarks, random BN-Inception weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmark_imitations as imitations
from paper.conftest import STUDIED, TABLES
from proxysynth.models.bn_inception import BNInception
from proxysynth.paper.artifact import Table
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.scale import SCALES, Scale
from proxysynth.paper.store import Store, requests
from proxysynth.protocols.mlrc.spaces import starts
from proxysynth.training.loop import train
from proxysynth.training.prepare import make_network
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run

CLASSIFIED = ("tableC", "tableD")
TRAINED = [name for name in TABLES if name != "tableA"]  # which measures this machine
TINY = ("epochs=1", "batch_size=4", "precision=auto")
CARS = [f"{number:03}" for number in range(1, 17)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "cache"))


def benchmarks(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A small copy of every benchmark; eight seen classes where folds need them."""
    eight = {"train": 8, "test": 8}
    roots = {name: root / name for name in imitations.MAKERS}
    for name, make in imitations.MAKERS.items():
        if name not in ("cub200", "cars196", "sop"):
            make(roots[name], monkeypatch)
    imitations.cars196_folders(roots["cars196"], monkeypatch, classes=CARS)
    imitations.expect(monkeypatch, "cars196", {"train": 32, "test": 32}, eight)
    number = 0
    for file, labels in (("Ebay_train.txt", range(1, 9)), ("Ebay_test.txt", range(9, 17))):
        lines = ["image_id class_id super_class_id path"]
        for label in sorted([*labels] * 3):
            number += 1
            path = f"chair_final/{label}_{number}.JPG"
            imitations.save_picture(roots["sop"] / path, number)
            lines.append(f"{number} {label} 1 {path}")
        (roots["sop"] / file).write_text("\n".join(lines) + "\n")
    imitations.expect(monkeypatch, "sop", {"train": 24, "test": 24}, eight)
    names = [f"{1 + n // 3:03}.Bird{n // 3:02}/{n}.jpg" for n in range(48)]
    for number, path in enumerate(names):
        imitations.save_picture(roots["cub200"] / "images" / path, number)
    images = "".join(f"{n} {path}\n" for n, path in enumerate(names, 1))
    labels_text = "".join(f"{n} {1 + (n - 1) // 3}\n" for n in range(1, 49))
    classes = "".join(f"{1 + n} {names[3 * n].partition('/')[0]}\n" for n in range(16))
    for name, text in (("images", images), ("image_class_labels", labels_text)):
        (roots["cub200"] / f"{name}.txt").write_text(text)
    (roots["cub200"] / "classes.txt").write_text(classes)
    imitations.expect(monkeypatch, "cub200", {"train": 24, "test": 24}, eight)
    return {name: str(folder) for name, folder in roots.items()}


def published(path: Path) -> Path:
    """A file with the names and shapes of the published weights, and random numbers."""
    torch.manual_seed(1)
    state = {key: value for key, value in BNInception().state_dict().items() if "num_" not in key}
    state = {key: value[None] if "_bn." in key else value for key, value in state.items()}
    state["last_linear.weight"], state["last_linear.bias"] = (
        torch.randn(1000, 1024),
        torch.zeros(1000),
    )
    torch.save(state, path)
    return path


def first_run(name: str, scale: Scale) -> Run:
    """A Run that the table needs; of a study, its first training."""
    asked = requests(load_artifacts([name]).values(), scale)
    if name in STUDIED:
        study = next(iter(asked.studies.values()))
        return study.run(starts(study.space), 0, 0)
    return next(iter(asked.runs))


@pytest.mark.filterwarnings("ignore:.*is not a published file")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "table6" else pytest.mark.slow) for name in TRAINED],
)
def test_run_of_every_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = published(tmp_path / "bn_inception.pth")
    size = ("width=0.125",) if name in CLASSIFIED else ("image_size=64",)
    scale: Any = SCALES["paper"].with_roots(benchmarks(tmp_path / "data", monkeypatch))
    scale = replace(scale.with_settings([f"weights={weights}", *TINY, *size]), seeds=(0,))
    run, store = first_run(name, scale), Store(tmp_path / "out")
    assert (run.epochs, run.batch_size, run.precision) == (1, 4, "auto")
    if name not in CLASSIFIED:
        assert run.weights == str(weights)
        first = make_network(run, None).backbone.get_parameter("conv1_7x7_s2.weight")
        assert torch.equal(first, torch.load(weights)["conv1_7x7_s2.weight"])
    result = train(run, store.folder_of(run), resources=Resources(workers=0, threads=1))
    assert result.run == run.identity
    assert store.result(run) == result
    table = load_artifacts([name])[name](scale, Store(tmp_path / "out", read_only=True))
    assert isinstance(table, Table)
    assert any("--set" in note and "epochs 1" in note for note in table.notes)
