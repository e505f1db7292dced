"""Whether a copy of a benchmark is whole: counts, missing, extra and unreadable files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from proxysynth.values import look_up

from .benchmarks.catalogue import CATALOGUE
from .benchmarks.contents import extra_files
from .benchmarks.opening import missing_pictures, present_parts, read_contents
from .benchmarks.tally import tally
from .check import Progress, bad_pictures

SHOWN = 5  # files of a kind that are named to a reader; all of them stand in the value


@dataclass(frozen=True)
class CopyCheck:
    """What was found in a copy.

    Args:
        name, title: of the benchmark.
        root: the folder of the copy.
        pictures, classes: of each part, pairs of what was found and what was published.
        missing: files that should be there.
        extra: files among the pictures that no label file names.
        unreadable: files that give no picture, and why.
        accepted: whether the copy can be trained on: it is complete, or an incomplete one was
            allowed, and everything in it can be read.
        note: what is worth knowing of the benchmark.
    """

    name: str
    title: str
    root: str
    pictures: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    accepted: bool
    note: str

    @property
    def complete(self) -> bool:
        """Whether every picture is there and can be read."""
        pairs = [*self.pictures.values(), *self.classes.values()]
        return all(found == published for found, published in pairs) and not self.unreadable

    def refusal(self, allow_incomplete: bool = False) -> str:
        """Why the copy is not accepted, and what helps; an incomplete one may be allowed already.

        What is unreadable or too much comes first: no option takes it."""
        pairs = [*self.pictures.values(), *self.classes.values()]
        what = f"{self.title} in {self.root}"
        if self.unreadable:
            file, why = self.unreadable[0]
            return (
                f"{what} has unreadable files ({len(self.unreadable):,}), the first is {file} "
                f"({why}): download them again"
            )
        if any(found > published for found, published in pairs):
            return f"{what} has more than was published: remove what was added"
        if allow_incomplete:
            empty = [part for part, (found, _) in self.pictures.items() if not found]
            return (
                f"{what} has no {' and no '.join(empty)} pictures, which training needs even of "
                "an incomplete copy: get the missing files"
            )
        return (
            f"{what} is not complete: get the missing files, or accept it with --allow-incomplete"
        )

    def describe(self) -> str:
        """A line per part and per kind of fault, for people."""
        lines = [f"{self.title} in {self.root}"]
        for part, (found, published) in self.pictures.items():
            of, classes = self.classes[part]
            lines.append(
                f"{part}: {found:,} of {published:,} pictures, {of:,} of {classes:,} classes"
            )
        faults = {
            "missing": self.missing,
            "extra": self.extra,
            "unreadable": tuple(f"{file} ({why})" for file, why in self.unreadable),
        }
        for kind, files in faults.items():
            if files:
                more = f", and {len(files) - SHOWN:,} more" if files[SHOWN:] else ""
                lines.append(f"{kind}: {len(files):,}: {', '.join(files[:SHOWN])}{more}")
        if self.note:
            lines.append(self.note)
        verdict = "complete" if self.complete else "not complete"
        if self.accepted and not self.complete:
            verdict += ", accepted as it is"
        return "\n".join([*lines, verdict])


def check_benchmark(
    name: str,
    root: str | os.PathLike[str],
    allow_incomplete: bool = False,
    workers: int = 0,
    progress: Progress | None = None,
) -> CopyCheck:
    """Read a copy from its label files to the last picture and say what is wrong with it.

    Args:
        name: a key of CATALOGUE.
        root: the folder of the copy.
        allow_incomplete: accept a copy that lacks pictures, as long as it can be trained on.
        workers: threads that read pictures.
        progress: called with pictures done and pictures in all.

    Raises:
        ValueError: where there is no copy, or its label files cannot be read.
    """
    entry = look_up(name, CATALOGUE, "benchmark")
    contents = read_contents(name, root)
    found = present_parts(contents)
    unreadable = list(contents.damaged)
    total, done = sum(len(part) for part in found.values()), 0
    for part in found.values():
        step = None if progress is None else _from(done, total, progress)
        bad = bad_pictures(part, workers=workers, progress=step)
        unreadable += [(part.names[i], error.reason) for i, error in bad.items()]
        done += len(part)
    count = tally(entry, found)
    usable = not unreadable and not count.too_many and all(n for n, _ in count.pictures.values())
    return CopyCheck(
        name=name,
        title=entry.title,
        root=str(contents.base),
        pictures=count.pictures,
        classes=count.classes,
        missing=(*contents.missing, *(picture for picture, _ in missing_pictures(contents))),
        extra=tuple(extra_files(contents)),
        unreadable=tuple(unreadable),
        accepted=usable and (count.complete or allow_incomplete),
        note=entry.note,
    )


def _from(start: int, total: int, progress: Progress) -> Progress:
    return lambda i, _: progress(start + i, total)
