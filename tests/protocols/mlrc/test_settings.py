"""The settings of the paper's section C.2 and of the reference harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol_transforms import MLRC
from proxysynth.data import RandomResizedCrop
from proxysynth.protocols.mlrc import SCALES, make_study, mlrc_run
from proxysynth.training.run import Run, Split


def test_paper_training_settings(tmp_path):
    run = mlrc_run(f"cub200:{tmp_path}", "norm_softmax")
    assert (run.backbone, run.dim, run.pretrained, run.freeze_batch_norm) == (
        "bn_inception", 128, True, True,
    )  # fmt: skip
    assert (run.optimizer, run.lr, run.momentum, run.weight_decay) == ("rmsprop", 1e-6, 0.9, 1e-4)
    assert (run.batch_size, run.sampler, run.m, run.schedule) == (32, "m_per_class", 1, "constant")
    assert (run.embedding_lr, run.warmup_epochs, run.precision) == (None, 0, "float32")
    assert (run.report_epoch, run.best_by) == ("best", "map@r")
    assert (run.transforms, run.augment, run.image_size, run.flip) == ("mlrc", True, 227, 0.5)
    assert MLRC.train == RandomResizedCrop(227, run.crop_scale, flip=run.flip, resize=256)


# Steps per epoch of three folds, and the harness's 200 / 500 / 2,000 steps between evaluations.
@pytest.mark.parametrize(
    ("name", "steps", "between", "without"),
    [("cub200", 137, 200, 1000), ("cars196", 188, 500, 1500), ("sop", 1395, 2000, 4000)],
)
def test_early_stopping_matches_the_reference_harness(tmp_path, name, steps, between, without):
    run = mlrc_run(f"{name}:{tmp_path}", "arcface", "proxy_synthesis")
    interval = run.evaluate_every * steps
    assert between / 1.5 <= interval <= between * 1.5
    assert without <= run.patience * interval < without + interval
    assert 100_000 <= run.epochs * steps < 100_000 + steps


def test_explicit_settings_override_defaults(tmp_path):
    run = mlrc_run(f"cub200:{tmp_path}", "softmax", epochs=3, lr=1e-4, weights="w.pth")
    assert (run.epochs, run.lr) == (3, 1e-4)
    assert run.weights == str(Path("w.pth").absolute())
    assert run.patience == 8


def test_scale_settings():
    paper = SCALES["paper"]
    assert (paper.trials, paper.folds, paper.repetitions, paper.prune) == (50, 4, 10, False)
    assert not paper.near
    small = SCALES["small"]
    assert small.trials >= 5
    assert small.folds == 4
    assert small.repetitions >= 3


def test_small_scale_on_glyphs_uses_glyph_defaults():
    study = make_study("glyphs")
    base, usual = study.base, Run()
    assert study.scale_name == "small"
    assert (base.backbone, base.pretrained, base.freeze_batch_norm) == ("conv4", False, False)
    assert (base.lr, base.optimizer, base.schedule) == (usual.lr, usual.optimizer, usual.schedule)
    assert base.split == Split()


def test_study_of_photographs_defaults_to_paper_scale(tmp_path):
    study = make_study(f"cub200:{tmp_path}", "proxy_anchor", "proxy_synthesis")
    assert study.scale_name == "paper"
    assert study.name == "cub200-proxy_anchor-proxy_synthesis"


@pytest.mark.parametrize("name", ["trials", "repetitions", "folds"])
def test_zero_counts_are_rejected(name):
    with pytest.raises(ValueError, match=name):
        make_study("glyphs", **{name: 0})


def test_incompatible_loss_and_regularizer_are_rejected():
    with pytest.raises(ValueError, match="VirtualSoftmax"):
        make_study("glyphs", "norm_softmax", "virtual_softmax")
