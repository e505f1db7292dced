"""What sections C.1, C.2 and D.2 state about data and settings, beyond `test_settings.py`."""

from __future__ import annotations

from math import sqrt

import pytest

from protocol_transforms import MLRC, MLRC_AS_PRINTED
from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.transforms import CenterCrop, RandomResizedCrop
from proxysynth.paper.claims.rules import DIFFERENCES, contradictions
from proxysynth.paper.scale import RETRIEVAL, SCALES
from proxysynth.paper.settings import paper_settings
from proxysynth.protocols.mlrc.settings import SCALES as STUDIES, mlrc_run

COUNTS = {
    "cub200": {"train": (5864, 100), "test": (5924, 100)},
    "cars196": {"train": (8054, 98), "test": (8131, 98)},
    "sop": {"train": (59551, 11318), "test": (60502, 11316)},
    "inshop": {"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)},
}
"""Images and classes of each part.                                                       [C.1]"""


@pytest.mark.parametrize("name", COUNTS)
def test_datasets_have_the_stated_counts(name: str) -> None:
    entry = CATALOG[name]
    found = {part: (entry.pictures[part], entry.classes[part]) for part in entry.pictures}
    assert found == COUNTS[name]


def test_in_shop_parts_do_not_sum_to_the_stated_total() -> None:
    parts = CATALOG["inshop"].pictures
    assert parts["query"] + parts["gallery"] == 26_830 != 28_760
    assert any("28,760" in text and "26,830" in text for text in contradictions([]))


def test_images_and_embeddings_have_the_stated_sizes() -> None:
    for name in RETRIEVAL:
        settings = paper_settings(name)
        assert (settings["image_size"], settings["dim"]) == (224, 512)


def test_figure_a_grid() -> None:
    paper = SCALES["paper"]
    assert paper.figure_alphas == (0.2, 0.4, 0.8, 1.0, 1.5, 2.0)
    assert paper.figure_mus == (0.2, 0.5, 1.0, 1.5, 2.0)


def test_mlrc_study_size() -> None:
    paper, dim = STUDIES["paper"], mlrc_run("cub200:data", "norm_softmax").dim
    assert (paper.trials, paper.folds, paper.repetitions) == (50, 4, 10)
    assert dim == 128
    assert dim * paper.folds == 512


def _sides(train: RandomResizedCrop) -> tuple[int, int]:
    """The smallest and largest side of a square crop."""
    least, most = (round(train.resize * sqrt(share)) for share in train.scale)
    return least, most


def test_mlrc_crops_match_the_reference_harness_not_the_paper() -> None:
    train, test = MLRC.train, MLRC.test
    assert isinstance(train, RandomResizedCrop)
    assert isinstance(test, CenterCrop)
    assert (train.resize, train.size, train.flip, train.ratio) == (256, 227, 0.5, (3 / 4, 4 / 3))
    assert (test.resize, test.size) == (256, 227)
    assert _sides(train) == (102, 256)
    assert isinstance(MLRC_AS_PRINTED.train, RandomResizedCrop)
    assert _sides(MLRC_AS_PRINTED.train) == (40, 256)
    assert any("40 to 256" in text and "102 to 256" in text for text in DIFFERENCES)
