"""Damage to every file that is written: the right result or one error that names the file.

A mutation flips bits, zeroes, cuts, repeats or inserts bytes, or puts another value into JSON. Each
file has one reader below, which compares everything that it reads with what was written.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import proxysynth as ps
from proxysynth.data.images import ImageCache
from proxysynth.report import compare
from proxysynth.report.run_report import read_finished
from proxysynth.search import build
from proxysynth.search.build import journal_path, update_index
from proxysynth.search.model import open_model
from proxysynth.training import read_run, train

SECONDS = 60  # for one reader; more is a hang
VALUES = (None, True, -1, 0, 7, 1e308, 10**40, "", "x", "\x1b[31m", [], {}, [[1]], {"kind": "Run"})


def flip_bits(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def zero(data: bytearray, draw: random.Random) -> None:
    start, length = draw.randrange(len(data)), draw.choice((1, 16, 512, 4096))
    data[start : start + length] = bytes(len(data[start : start + length]))


def truncate(data: bytearray, draw: random.Random) -> None:
    del data[draw.choice((0, 1, len(data) - 1, draw.randrange(len(data)))) :]


def insert(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data) + 1)
    data[start:start] = draw.choice((b"\0", b"\n", b"{", b'"', draw.randbytes(40)))


def repeat(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data))
    data[start:start] = data[start : start + draw.choice((1, 40, 4096))]


def garbage(data: bytearray, draw: random.Random) -> None:
    """Another value somewhere in a JSON text; other files become JSON."""
    lines = bytes(data).split(b"\n")
    try:
        number = draw.randrange(len(lines)) if len(lines) < 4 else 0
        text = lines[number] if len(lines) < 4 else bytes(data)
        value = json.loads(text)
    except ValueError:
        data[:] = draw.choice((b"{}", b"[]", b"null", b"[" * 100_000, b"NaN", b'{"format": 1}'))
        return
    holder, key = draw.choice(list(places(value)) or [([value], 0)])
    holder[key] = draw.choice(VALUES)
    text = json.dumps(value).encode()
    data[:] = text if len(lines) >= 4 else b"\n".join([*lines[:number], text, *lines[number + 1 :]])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every object and list in a JSON value."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


MUTATIONS = (flip_bits, zero, truncate, insert, repeat, garbage)


def mutate(file: Path, seed: int) -> str:
    """Change a file; returns how."""
    draw, before = random.Random(f"{file.name} {seed}"), file.read_bytes()
    how = MUTATIONS[seed % len(MUTATIONS)]
    for _ in range(100):
        data = bytearray(before)
        how(data, draw)
        if data != before:
            break
    file.write_bytes(data)
    return how.__name__


def embeddings_of(run: Path, shop: Path) -> Any:
    model = ps.load(run, "cpu")
    return model.embed(sorted(shop.glob("photos/*/*.png"))).tolist(), model.classes, model.epoch


def report_of(run: Path, shop: Path) -> Any:
    made = compare([run, shop / "other"]).to_json()
    return json.loads(json.dumps(made).replace(str(run), "RUN").replace(run.name, "RUN"))


def saved_embeddings_of(run: Path, shop: Path) -> Any:
    made = read_finished(run)
    arrays = made.embedded()
    return made.query_names, made.classes, arrays.x.tolist(), arrays.y.tolist()


def resumed(run: Path, shop: Path) -> Any:
    """The outcome of a run that was interrupted in its second epoch."""
    result = train(read_run(run).run, run)
    return result.metrics, result.untrained, embeddings_of(run, shop)


def items_of(file: Path, shop: Path) -> Any:
    index = ps.Index.open(file)
    return list(zip(index.paths, index.labels, index.vectors().tolist(), strict=True))


def repaired(file: Path, shop: Path) -> Any:
    update_index(open_model(shop / "run", "cpu"), shop / "photos", file)
    return items_of(file, shop)


def cached_image(folder: Path, shop: Path) -> Any:
    return ImageCache(24, folder=folder).image(shop / "photos/class0/0.png").tolist()


# File, its reader, and whether the damage may end in an error: the others are repaired.
CASES: dict[str, tuple[str, Callable[[Path, Path], Any], bool]] = {
    "run": ("run/run.json", embeddings_of, True),
    "model": ("run/model.safetensors", embeddings_of, False),
    "result": ("run/result.json", report_of, True),
    "metrics": ("run/metrics.jsonl", report_of, True),
    "embeddings": ("run/embeddings.safetensors", saved_embeddings_of, True),
    "state": ("run/checkpoint/*/state.json", resumed, False),
    "tensors": ("run/checkpoint/*/tensors.safetensors", resumed, False),
    "index": ("shop.index", items_of, True),
    "repair": ("shop.index", repaired, True),
    "journal": (".unfinished-shop.index.journal", repaired, False),
    "cache": ("cache/*/*.raw", cached_image, False),
}


def prepare(name: str, shop: Path, place: Path) -> Path:
    """Copy what the reader needs; returns what it is given."""
    if name in ("index", "repair"):
        return Path(shutil.copy(shop / "shop.index", place / "shop.index"))
    if name == "journal":
        return interrupted_indexing(shop, place / "shop.index")
    if name == "cache":
        cached_image(place / "cache", shop)
        return place / "cache"
    source = "half" if name in ("state", "tensors") else "run"
    return Path(shutil.copytree(shop / source, place / "run"))


def interrupted_indexing(shop: Path, file: Path) -> Path:
    """An index that is not there yet, with a journal of some of its images."""

    def first_only(*args: Any) -> Iterator[Any]:
        yield next(embed_files(*args))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        embed_files = build.embed_files
        patch.setattr(build, "BATCH", 9)
        patch.setattr(build, "embed_files", first_only)
        update_index(open_model(shop / "run", "cpu"), shop / "photos", file)
    assert journal_path(file).exists()
    return file


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"{what}: it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attack(name: str, shop: Path, base: Path, seeds: range) -> dict[str, int]:
    """Mutate one file in as many ways as there are seeds; returns how often it was noticed."""
    pattern, read, may_fail = CASES[name]
    pristine = base / "pristine"
    pristine.mkdir()
    given = prepare(name, shop, pristine)
    expected, counts = None, {"right": 0, "error": 0}
    for seed in [None, *seeds]:
        place = Path(shutil.copytree(pristine, base / "now"))
        what = f"{name} as it was"
        if seed is not None:
            file = sorted(place.glob(pattern))[-1]
            what = f"{name}, seed {seed}: {mutate(file, seed)} in {file.name}"
        try:
            with time_limit(what):
                found = read(place / given.relative_to(pristine), shop)
        except ValueError as error:
            message = str(error)
            assert seed is not None, message
            assert may_fail, f"{what}: {message}"
            assert file.name in message, f"{what}: the file is not named: {message}"
            assert "\n" not in message
            counts["error"] += 1
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        else:
            expected = found if seed is None else expected
            assert found == expected, f"{what}: a wrong result"
            counts["right"] += seed is not None
        shutil.rmtree(place)
    return counts


@pytest.mark.filterwarnings("ignore:.*is damaged.*")
@pytest.mark.parametrize("name", CASES)
def test_damaged_files_are_detected(name, shop, tmp_path) -> None:
    attack(name, shop, tmp_path, range(len(MUTATIONS)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is damaged.*")
@pytest.mark.parametrize("name", CASES)
def test_many_damaged_files_are_detected(name, shop, tmp_path, record_property) -> None:
    counts = attack(name, shop, tmp_path, range(100, 148))
    record_property("counts", counts)
