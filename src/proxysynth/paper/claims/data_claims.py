"""Claims about the data sets: how many pictures and classes.                         [C.1]

They are held against the definitions that `proxysynth data check` holds a copy to.
"""

from __future__ import annotations

from functools import partial

from proxysynth.data.benchmarks.catalogue import CATALOGUE
from proxysynth.paper.claims.claim import Claim, Evidence, Verdict, held

Counts = dict[str, tuple[int, int]]
"""Pictures and classes by part."""


def _counts(name: str, stated: Counts, e: Evidence) -> Verdict:
    entry = CATALOGUE[name]
    found = {part: (entry.pictures[part], entry.classes[part]) for part in entry.pictures}
    told = ", ".join(
        f"{part} {pictures:,} pictures of {classes:,} classes"
        for part, (pictures, classes) in found.items()
    )
    return held(found == stated, told)


def _inshop(e: Evidence) -> Verdict:
    parts = CATALOGUE["inshop"].pictures
    total = parts["query"] + parts["gallery"]
    told = f"{parts['query']:,} queries and {parts['gallery']:,} gallery pictures make {total:,}"
    return held(total == 28_760, told)


def _claim(sentence: str, name: str, stated: Counts) -> Claim:
    return Claim(
        sentence,
        "section C.1",
        "the set is defined here with these counts",
        partial(_counts, name, stated),
        trained=False,
        printed=False,
    )


DATA = (
    _claim(
        "For CUB200, we use 5,864 images of the first 100 classes for training and the remaining "
        "5,924 images of the 100 other classes for testing",
        "cub200",
        {"train": (5864, 100), "test": (5924, 100)},
    ),
    _claim(
        "For CARS196, we use the first 8,054 images of 98 classes for training and the remaining "
        "8,131 images of the 98 other classes for testing",
        "cars196",
        {"train": (8054, 98), "test": (8131, 98)},
    ),
    _claim(
        "For SOP, [...] the first 59,551 images of 11,318 classes are used for training, and the "
        "remaining 60,502 images of 11,316 classes are used for testing",
        "sop",
        {"train": (59551, 11318), "test": (60502, 11316)},
    ),
    _claim(
        "For In-Shop, [...] 25,882 images of the first 3,997 classes for training and [...] a "
        "query set with 14,218 images of 3,985 classes and a gallery set with 12,612 images of "
        "3,985 classes",
        "inshop",
        {"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)},
    ),
    Claim(
        "For In-Shop [...] 28,760 images of the remaining classes for testing; the test set is "
        "further partitioned into a query set with 14,218 images [...] and a gallery set with "
        "12,612 images",
        "section C.1",
        "the two parts add up",
        _inshop,
        trained=False,
    ),
)
