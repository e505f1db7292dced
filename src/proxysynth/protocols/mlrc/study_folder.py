"""A study's folder and its `study.json`: whose folder it is, and what is searched there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxysynth.errors import WrongFolder
from proxysynth.files import UNFINISHED, write_json
from proxysynth.provenance import provenance

from .storage import shown
from .study import Study

if TYPE_CHECKING:
    from optuna.study import Study as OptunaStudy

FORMAT = 1
STUDY = "study.json"
FACTS = "proxysynth"


def claim_folder(folder: Path, study: Study, facts: Mapping[str, Any]) -> None:
    """Make the folder this study's, or see that it is; another one's is refused."""
    path = folder / STUDY
    if path.exists():
        try:
            told = json.loads(path.read_bytes())
            there = told["facts"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WrongFolder(f"{path} cannot be read as a study: choose another folder") from error
        if there != facts:
            raise WrongFolder(
                f"{folder} holds another study ({differences(there, facts)}): choose another "
                "folder with --out, or give that study's settings to go on with it"
            )
        return
    others = [name for name in os.listdir(folder) if not _ours(name)]
    if others:
        raise WrongFolder(
            f"{folder} is not empty and holds no study (it has {sorted(others)[0]!r}): choose "
            "another folder with --out"
        )
    about = {"format": FORMAT, "name": study.name, "scale": study.scale_name, "facts": facts}
    write_json(path, {**about, "provenance": provenance()})


def _ours(name: str) -> bool:
    return name == ".lock" or name.startswith((UNFINISHED, "study."))


def same_study(made: OptunaStudy, facts: Mapping[str, Any], storage: str) -> None:
    """Leave the facts in the storage, or see that those there are the same."""
    there = made.user_attrs.get(FACTS)
    if there is None:
        made.set_user_attr(FACTS, json.loads(json.dumps(facts)))
    elif there != facts:
        raise WrongFolder(
            f"the storage {shown(storage)} holds another study under the name "
            f"{made.study_name!r} ({differences(there, facts)}): choose another storage, or give "
            "that study's settings to work on it"
        )


def differences(there: Any, here: Any, most: int = 3) -> str:
    """In which facts two studies differ: "folds 4 there, 2 here; ..."."""
    a, b = _flat(there), _flat(here)
    paths = [path for path in {**a, **b} if a.get(path) != b.get(path)]
    told = [f"{path} {a.get(path, 'absent')} there, {b.get(path, 'absent')} here" for path in paths]
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if told[most:] else "")


def _flat(value: Any, start: str = "") -> dict[str, Any]:
    """Nested JSON by dotted paths; a searched range goes by its name."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = {str(item.get("name", i)): item for i, item in enumerate(value)}
    if not isinstance(value, Mapping):
        return {start: value}
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat |= _flat(item, f"{start}.{name}" if start else str(name))
    return flat
