from __future__ import annotations

import pytest

from proxysynth.data.glyphs import alphabet
from proxysynth.losses import NormSoftmax, ProxyAnchor, Softmax
from proxysynth.paper.scale import CLASSIFICATION, KS, RETRIEVAL, SCALES
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.prepare import open_splits

SMALL, SMOKE, PAPER = (SCALES[name] for name in ("small", "smoke", "paper"))


def test_four_glyph_datasets_replace_the_benchmarks() -> None:
    runs = {name: SMALL.run(name, NormSoftmax()) for name in RETRIEVAL}
    assert all(run is not None and run.data == "glyphs" for run in runs.values())
    assert len({run.split for run in runs.values() if run}) == 4
    assert len({SMALL.heading(name) for name in RETRIEVAL}) == 4
    assert {name: run.ks for name, run in runs.items() if run} == KS


def test_small_datasets_are_shaped_like_the_benchmarks() -> None:
    sizes_of = {
        "cub200": (100, 3000),
        "cars196": (98, 7840),
        "sop": (800, 4000),
        "inshop": (400, 3200),
    }
    for name, sizes in sizes_of.items():
        run, small = SMALL.run(name, NormSoftmax()), SMOKE.run(name, NormSoftmax())
        split, classes = run.split, run.split.train_classes or 0
        faces = split.faces_per_class or 16
        assert (classes, classes * (split.pictures_per_class or faces)) == sizes
        assert classes + (split.test_classes or 0) <= len(alphabet(faces))
        splits = open_splits(small)
        assert not set(splits.train.classes) & set(splits.query.classes)
        assert (splits.gallery is not None) == (name == "inshop")


def test_in_shop_stand_in_query_and_gallery_share_no_typeface() -> None:
    run = SMOKE.run("inshop", NormSoftmax())
    splits = open_splits(run)
    faces = [{name.split("/")[1] for name in part.names} for part in (splits.query, splits.gallery)]
    assert faces[0]
    assert faces[1]
    assert not faces[0] & faces[1]


def test_classification_trains_on_12_typefaces_and_tests_on_4() -> None:
    run = SMOKE.run("cifar10", Softmax())
    assert run.task == "classification"
    splits = open_splits(run)
    assert (len(splits.train), len(splits.query)) == (96, 32)
    splits_of = {SMALL.run(name, Softmax()).split for name in CLASSIFICATION}
    assert len(splits_of) == 4
    assert all(SMOKE.run(name, Softmax()) is None for name in CLASSIFICATION[1:])


def test_photographs_are_used_if_their_folder_is_given() -> None:
    scale = SMALL.with_roots({"cub200": "/data/cub", "cifar10": "/data/cifar"})
    run = scale.run("cub200", NormSoftmax())
    assert (run.data, run.image_size, run.backbone) == (
        "cub200:/data/cub", 96, "efficientnet_lite0",
    )  # fmt: skip
    assert (run.epochs, run.decay_epochs, run.freeze_batch_norm) == (12, (8,), True)
    few = scale.run("cifar10", Softmax())
    assert few.data == "cifar10:/data/cifar"
    assert (few.width, few.split.train_pictures, few.split.test_pictures) == (0.25, 2000, 2000)
    assert "CUB" in scale.heading("cub200")
    assert "glyphs" in scale.heading("cars196")


def test_paper_scale_without_folders_has_no_runs() -> None:
    assert all(PAPER.run(name, NormSoftmax()) is None for name in RETRIEVAL)
    assert all(PAPER.heading(name) == "" for name in (*RETRIEVAL, *CLASSIFICATION))
    scale = PAPER.with_roots({"cars196": "/data/cars", "cifar100": "/data/cifar"})
    run = scale.run("cars196", NormSoftmax(), seed=3, report_epoch="best")
    assert (run.backbone, run.dim, run.batch_size, run.decay_epochs, run.seed) == (
        "bn_inception", 512, 128, (50,), 3,
    )  # fmt: skip
    assert run.report_epoch == "best"
    anchor = scale.run("cars196", ProxySynthesis(ProxyAnchor()))
    assert (anchor.batch_size, anchor.optimizer) == (180, "adamw")
    assert scale.run("cifar100", Softmax()) is not None


def test_unknown_names_are_rejected_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="cars196"):
        SMALL.run("cars", NormSoftmax())
    with pytest.raises(ValueError, match="'cub'"):
        SMALL.with_roots({"cub": "/x"})


def test_runs_are_equal_for_equal_seeds_only() -> None:
    a, b, c = (SMALL.run("sop", "softmax", seed) for seed in (0, 0, 1))
    assert a == b
    assert a.identity != c.identity
