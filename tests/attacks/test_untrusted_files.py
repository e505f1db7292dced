"""Files from elsewhere are data: whatever they hold, nothing runs, and errors are sentences.

Unlike damage, such files come with checksums that fit. Names that are code and escapes in file
names are tested in `search/test_trust.py` and `search/test_escapes.py`.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import proxysynth as ps
from attacks.bomb import Bomb
from attacks.test_mutations import VALUES, places, time_limit
from proxysynth.cli import main
from proxysynth.report import compare, write_report
from proxysynth.search.index_file import ABOUT, HEADER_SUM
from proxysynth.training.inference import require_trust

ESCAPE = "\x1b]0;evil\x07\x1b[2J"
SHOWN = ("name", "device", "machine", "why", "commit")
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    *VALUES,
    10**9,
    2**31,
    2**63,
    float("inf"),
    SCRIPT,
    "../../etc/passwd",
    "os:abort",
    "a:b",
)


def read_json(file: Path) -> Any:
    return json.loads(file.read_bytes())


def write_json(file: Path, value: Any) -> None:
    value.pop("crc32", None)  # files without a checksum are those of version 0.1
    file.write_text(json.dumps(value))


def read_header(file: Path) -> Any:
    """The header of an index, with the JSON in its metadata decoded."""
    data = file.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    header["__metadata__"][ABOUT] = json.loads(header["__metadata__"][ABOUT])
    return header


def write_header(file: Path, header: Any) -> None:
    """Replace the header of an index, with a checksum that fits."""
    data = file.read_bytes()
    body = data[8 + struct.unpack("<Q", data[:8])[0] :]
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict) and ABOUT in metadata:
        about = metadata[ABOUT] = json.dumps(metadata[ABOUT])
        checked = (about + json.dumps(header, sort_keys=True)).encode()
        metadata[HEADER_SUM] = f"{zlib.crc32(checked):08x}"
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


def load_and_embed(folder: Path) -> None:
    ps.load(folder / "run", "cpu").embed([folder / "photos/class0/0.png"])


def compare_runs(folder: Path) -> None:
    compare([folder / "run", folder / "other"]).to_json()


def open_and_search(folder: Path) -> None:
    index = ps.Index.open(folder / "shop.index")
    index.search_vectors(torch.ones(1, index.dim), k=3)
    assert all(isinstance(label, str | None) for label in index.labels)
    index.search(folder / "photos/class0/0.png", k=3)


Case = tuple[str, Callable[[Path], Any], Callable[[Path, Any], None], Callable[[Path], None]]
CASES: dict[str, Case] = {
    "run": ("run/run.json", read_json, write_json, load_and_embed),
    "result": ("run/result.json", read_json, write_json, compare_runs),
    "index": ("shop.index", read_header, write_header, open_and_search),
}


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """A file that asks for terabytes must get an error, not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def copied(shop: Path, place: Path) -> Path:
    for name in ("photos", "run", "other"):
        shutil.copytree(shop / name, place / name)
    shutil.copy(shop / "shop.index", place / "shop.index")
    return place


def attack(name: str, folder: Path, count: int | None) -> tuple[int, int]:
    """Put hostile values in place of others; returns how many were accepted and refused."""
    pattern, read, write, use = CASES[name]
    file, accepted, refused, bugs = folder / pattern, 0, 0, []
    original = file.read_bytes()
    keys = len(list(places(read(file))))
    chosen = [(place, value) for place in range(keys) for value in range(len(HOSTILE))]
    if count is not None:
        chosen = random.Random(name).sample(chosen, count)
    for place, value in chosen:
        content = read(file)
        holder, key = list(places(content))[place]
        holder[key] = HOSTILE[value]
        what = f"{name}: {key} = {HOSTILE[value]!r}"
        write(file, content)
        try:
            with time_limit(what):
                use(folder)
            accepted += 1
        except ValueError as error:
            assert "\n" not in str(error), what  # noqa: PT017
            refused += 1
        except Exception as error:
            bugs.append(f"{what}: {type(error).__name__}: {error}")
        file.write_bytes(original)
    assert not bugs, "\n".join(bugs)
    return accepted, refused


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize("name", CASES)
def test_hostile_values_are_handled(name, shop, tmp_path) -> None:
    _, refused = attack(name, copied(shop, tmp_path), count=60)
    assert refused > 5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize("name", CASES)
def test_all_hostile_values_are_handled(name, shop, tmp_path, record_property) -> None:
    record_property("counts", attack(name, copied(shop, tmp_path), count=None))


@pytest.mark.parametrize(
    "backbone", ["os:abort", "timm:hf-hub:a/b", "timm:local-dir:/tmp", ":", "a:"]
)
def test_untrusted_backbone_names_are_rejected(backbone) -> None:
    with pytest.raises(ValueError, match="--trust"):
        require_trust(backbone, "run.json", False)
    require_trust(backbone, "run.json", True)
    require_trust("timm:resnet50.a1_in1k", "run.json", False)
    require_trust("conv4", "run.json", False)


@pytest.mark.parametrize("how", ["torch", "pickle"])
@pytest.mark.parametrize(
    "pattern", ["run/model.safetensors", "run/checkpoint/*/tensors.*", "*.index"]
)
def test_pickles_are_never_executed(shop, tmp_path, how, pattern) -> None:
    folder, trap = copied(shop, tmp_path), tmp_path / "trap"
    (file,) = folder.glob(pattern)
    if how == "torch":
        torch.save({"proxies": Bomb(trap)}, file)
    else:
        file.write_bytes(pickle.dumps(Bomb(trap)))
    if "checkpoint" in pattern:
        (folder / "run" / "model.safetensors").unlink()
        (folder / "run" / "result.json").unlink()
    else:
        shutil.rmtree(folder / "run" / "checkpoint")
    with pytest.raises(ValueError):
        open_and_search(folder) if pattern == "*.index" else load_and_embed(folder)
    assert not trap.exists()
    with pytest.raises(ValueError):
        ps.train(ps.Run(data=str(folder / "photos"), weights=str(file)), tmp_path / "fine-tuned")
    assert not trap.exists()


def test_untrusted_text_is_escaped_in_terminal_and_page(shop, tmp_path, capsys) -> None:
    """Names of classes, data and labels, notes, machine: everything that a file can say."""
    folder, evil = copied(shop, tmp_path), f"{ESCAPE}{SCRIPT}"
    shutil.rmtree(folder / "other")
    shutil.copytree(folder / "run", folder / "other")
    for run in (folder / "run", folder / "other"):
        for name in ("run.json", "result.json"):
            content = read_json(run / name)
            for holder, key in list(places(content)):
                if isinstance(holder[key], str) and key in SHOWN:
                    holder[key] = evil
            if name == "run.json":
                content["classes"] = [f"{evil}{i}" for i in range(len(content["classes"]))]
            else:
                content["notes"] = [evil]
            write_json(run / name, content)
    for words in (
        ["compare", folder / "run", folder / "other", "--out", folder / "comparison.html"],
        ["eval", folder / "run", folder / "photos"],
        ["search", folder / "shop.index", folder / "photos/class0/0.png"],
        ["index", folder / "run", folder / "photos", "-o", folder / "new.index"],
        ["train", "--resume", "--out", folder / "run"],
    ):
        with pytest.raises(SystemExit):
            main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "\x1b]" not in captured.out + captured.err, words
        assert "\x07" not in captured.out + captured.err, words
    write_report(folder / "run")
    for page in (folder / "comparison.html", folder / "run" / "report.html"):
        assert page.exists()
        assert SCRIPT not in page.read_text()
