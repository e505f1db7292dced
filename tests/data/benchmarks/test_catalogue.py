import dataclasses
import json

from proxysynth.data import BENCHMARKS, CATALOGUE, catalogue
from proxysynth.data.benchmarks.opening import READERS

# The paper's section C.1, and the sets' own pages: pictures and classes of each part.
PUBLISHED = {
    "cub200": [(5864, 100), (5924, 100)],
    "cars196": [(8054, 98), (8131, 98)],
    "sop": [(59551, 11318), (60502, 11316)],
    "inshop": [(25882, 3997), (14218, 3985), (12612, 3985)],
    "cifar10": [(50000, 10), (10000, 10)],
    "cifar100": [(50000, 100), (10000, 100)],
    "svhn": [(73257, 10), (26032, 10)],
    "tiny_imagenet": [(100000, 200), (10000, 200)],
}


def test_the_counts_are_those_published():
    found = {
        name: list(zip(entry.pictures.values(), entry.classes.values(), strict=True))
        for name, entry in CATALOGUE.items()
    }
    assert found == PUBLISHED
    assert sum(CATALOGUE["cub200"].pictures.values()) == 11_788
    assert sum(CATALOGUE["cars196"].pictures.values()) == 16_185
    assert sum(CATALOGUE["sop"].pictures.values()) == 120_053
    assert sum(CATALOGUE["inshop"].pictures.values()) == 52_712


def test_the_misprint_is_noted():
    assert "28,760" in CATALOGUE["inshop"].note
    assert "26,830" in CATALOGUE["inshop"].note
    pictures = CATALOGUE["inshop"].pictures
    assert pictures["query"] + pictures["gallery"] == 26_830


def test_every_entry_has_a_reader_and_says_where_it_comes_from():
    assert set(CATALOGUE) == set(READERS) == set(BENCHMARKS)
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert set(entry.pictures) == set(entry.classes)
        assert entry.published.startswith("http")
        for field in ("title", "needs", "licence", "size"):
            assert getattr(entry, field)


def test_rows_are_plain_values():
    rows = catalogue()
    assert [row["name"] for row in rows] == list(CATALOGUE)
    assert json.loads(json.dumps(rows)) == rows
    first = dataclasses.asdict(CATALOGUE["cub200"])
    assert all(rows[0][key] == list(first[key]) if key == "needs" else rows[0][key] == first[key]
               for key in rows[0])  # fmt: skip
