"""A run's folder and its `run.json`: whose folder it is, and what the run needs to be run again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proxysynth.data import Splits
from proxysynth.errors import WrongFolder, cannot_write
from proxysynth.files import UNFINISHED, write_json
from proxysynth.provenance import provenance
from proxysynth.training.checkpoint import Checkpoints
from proxysynth.training.prepare import Prepared, resized_side
from proxysynth.training.record import RESULT
from proxysynth.training.run import KINDS, Run
from proxysynth.training.tensor_file import MODEL
from proxysynth.values import decode, encode

FORMAT = 1
RUN = "run.json"
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Recorded:
    """What a `run.json` says.

    Args:
        run: the run.
        identity: its hash, as the version that wrote the file computed it.
        data: name, fingerprint, pictures and classes of each part, see `describe`.
        classes: the names of the seen classes; the proxies are in this order.
        image_size, short_side: a picture's short side is brought to the second number, then the
            square of the first is cut out of its middle.
    """

    run: Run
    identity: str
    data: dict[str, Any]
    classes: tuple[str, ...]
    image_size: int
    short_side: int


def read_run(folder: str | os.PathLike[str]) -> Recorded:
    """What the folder's `run.json` says; an error where it holds no run."""
    found = find_run(Path(folder))
    if found is None:
        raise WrongFolder(f"{folder} holds no run: give a folder that proxysynth trained into")
    return found


def find_run(folder: Path) -> Recorded | None:
    """What the folder's `run.json` says, None where there is none."""
    path = Path(os.path.expanduser(folder)) / RUN
    try:
        told = json.loads(path.read_bytes())
        version = told["format"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WrongFolder(f"{path} cannot be read as a run: choose another folder") from error
    if not isinstance(version, int) or version > FORMAT:
        raise WrongFolder(
            f"{path} was written by a newer version of proxysynth (format {version}, this one "
            f"reads {FORMAT}): upgrade proxysynth, or choose another folder"
        )
    try:
        run = decode(told["run"], KINDS)
        rest = {name: told[name] for name in ("identity", "data", "image_size", "short_side")}
        return Recorded(run=run, classes=tuple(told["classes"]), **rest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WrongFolder(f"{path} is not a run of this version: {error}") from error


def write_run(folder: Path, recorded: Recorded) -> None:
    told = {
        "format": FORMAT,
        "identity": recorded.identity,
        "run": encode(recorded.run),
        "data": recorded.data,
        "image_size": recorded.image_size,
        "short_side": recorded.short_side,
        "provenance": provenance(),
        "classes": list(recorded.classes),
    }
    write_json(folder / RUN, told)


def record_run(folder: Path, recorded: Recorded | None, run: Run, ready: Prepared) -> str:
    """Write `run.json`, or see that the data is still what it says; returns the identity."""
    data = describe(ready.splits)
    if recorded is None:
        size, train = ready.net.image_size, ready.splits.train
        side = resized_side(run, size, in_memory=train.root is None)
        recorded = Recorded(run, run.identity, data, train.classes, size, side)
        write_run(folder, recorded)
    elif recorded.data["fingerprint"] != data["fingerprint"]:
        raise WrongFolder(
            f"the pictures of {run.data} have changed since the run in {folder} began (hash "
            f"{recorded.data['fingerprint']} then, {data['fingerprint']} now): put them back, or "
            "choose another folder"
        )
    return recorded.identity


def describe(splits: Splits) -> dict[str, Any]:
    """Name, hashes, how many of the test classes are trained on too, and pictures and classes of
    each part. Runs with one hash of the test can be compared, whatever they trained on."""
    parts = {
        "train": splits.train,
        "validation": splits.validation,
        "query": splits.query,
        "gallery": splits.gallery,
    }
    return {
        "name": splits.name,
        "fingerprint": splits.fingerprint(),
        "test_fingerprint": replace(splits, train=splits.query, validation=None).fingerprint(),
        "shared_classes": len(set(splits.train.classes) & set(splits.query.classes)),
        **{
            name: {"pictures": len(part), "classes": len(part.classes)}
            for name, part in parts.items()
            if part is not None
        },
    }


def claim(folder: Path, run: Run) -> Recorded | None:
    """Make sure that the folder is this run's, or free; returns what is recorded there.

    A folder with files that are not a run's is not free: `--out ~/Pictures` is a slip. One whose
    run broke off before it had learnt anything is: what failed can be corrected there. Whether
    another process is at work in it is the lock's to say.
    """
    if not _is_utf8(folder):
        raise WrongFolder(
            "a run's folder must have a name in UTF-8, else its model cannot be read, got "
            f"{folder}: choose another folder"
        )
    found = find_run(folder)
    if found is not None and not _learnt(folder):
        return None
    if found is not None:
        if found.run != run:
            raise WrongFolder(
                f"{folder} holds another run ({differences(found.run, run)}): choose another "
                "folder, or give the settings of that run to go on with it"
            )
        return found
    try:
        entries = os.listdir(folder) if folder.exists() else []
    except OSError as error:
        raise cannot_write(folder, error, "nothing was changed") from error
    others = [name for name in entries if name != ".lock" and not name.startswith(UNFINISHED)]
    if others:
        raise WrongFolder(
            f"{folder} is not empty and holds no run (it has {sorted(others)[0]!r}): "
            "choose another folder"
        )
    return None


def _learnt(folder: Path) -> bool:
    """Whether there is something of a run that would be lost."""
    made = any((folder / name).exists() for name in (MODEL, RESULT))
    return made or bool(Checkpoints(folder / CHECKPOINT).steps())


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def make_folder(folder: Path) -> None:
    """Make sure that there is a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error, "nothing was changed") from error


def tidy(folder: Path) -> None:
    """Delete the files that a kill left half-written."""
    for entry in folder.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            entry.unlink()


def differences(there: Run, here: Run, most: int = 4) -> str:
    """In which fields two runs differ: "epochs 30 there, 20 here; ..."."""
    a, b = _flat(encode(there)), _flat(encode(here))
    paths = [path for path in {**a, **b} if a.get(path) != b.get(path)]
    told = [f"{path} {_show(a, path)} there, {_show(b, path)} here" for path in paths[:most]]
    more = f"; and {len(paths) - most} more" if len(paths) > most else ""
    return "; ".join(told) + more


def _flat(value: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Nested JSON by dotted paths, as `--set` writes them."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{start}{name}.")
        else:
            flat[start + name] = item
    return flat


def _show(flat: Mapping[str, Any], path: str) -> str:
    return repr(flat[path]) if path in flat else "absent"
