import os

import pytest

from proxysynth.losses import CosFace
from proxysynth.training import Run, Split, default_run
from proxysynth.training.defaults import run_from_options


def test_glyphs_are_the_default():
    assert default_run() == Run()


def test_folder_defaults_to_fine_tuning(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    run = default_run("photos")
    assert run.data == os.path.abspath("photos")
    assert (run.backbone, run.pretrained, run.freeze_batch_norm) == (
        "efficientnet_lite0",
        True,
        True,
    )
    assert (run.lr, run.proxy_lr, run.augment) == (1e-4, 1e-2, True)
    assert run.warmup_epochs == 1


def test_norm_softmax_scale_is_smaller_for_photographs(tmp_path):
    photos = str(tmp_path)
    assert default_run(photos).loss == run_from_options(photos).loss
    scales = [
        run_from_options(data, settings=settings).loss.loss.scale
        for data, settings in [("glyphs", ()), (photos, ()), (photos, ["loss.scale=23"])]
    ]
    assert scales == [23, 11, 23]
    assert run_from_options(photos, loss="cosface").loss.loss.scale == CosFace().scale


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "by_classes"),
        ({"interpolate": None}, None),
        ({"interpolate": 0.25}, 0.25),
        ({"dim": 64}, None),
        ({"pretrained": False}, None),
        ({"task": "classification"}, None),
        ({"init": "earlier"}, None),
    ],
)
def test_photographs_default_interpolation(tmp_path, changes, expected):
    assert default_run(tmp_path, **changes).interpolate == expected


def test_from_scratch_uses_larger_lr_and_live_batch_norm(tmp_path):
    run = default_run(tmp_path, pretrained=False)
    assert (run.lr, run.freeze_batch_norm, run.warmup_epochs) == (Run.lr, False, 0)


def test_explicit_settings_override_defaults(tmp_path):
    run = default_run(tmp_path, lr=3e-4, freeze_batch_norm=False, epochs=2)
    assert (run.lr, run.freeze_batch_norm, run.warmup_epochs) == (3e-4, False, 0)


def test_custom_backbone_has_no_pretrained_default(tmp_path):
    assert default_run(tmp_path, backbone="my.module:network").pretrained is None


def test_benchmark_name_is_kept_in_data_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_run("cub200:birds").data == f"cub200:{os.path.abspath('birds')}"


def test_misspelled_field_suggests_nearest():
    with pytest.raises(ValueError, match="did you mean 'epochs'"):
        default_run(epoch=3)


def test_relative_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = default_run("glyphs", weights="w.safetensors", split=Split(root="pictures"))
    assert run.weights == str(tmp_path / "w.safetensors")
    assert run.split.root == str(tmp_path / "pictures")


def test_virtual_softmax_is_clipped_for_retrieval_only() -> None:
    words = ("glyphs", "softmax", "virtual_softmax")
    assert run_from_options(*words).loss.clip == 10.0
    assert run_from_options(*words, ["task=classification"]).loss.clip is None
    chosen = run_from_options(*words, ["task=classification", "regularizer.clip=3"])
    assert chosen.loss.clip == 3.0


@pytest.mark.parametrize("path", ["loss.scale", "regularizer.alpha", "split.fold"])
def test_nested_field_is_suggested_with_its_path(path) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{path}'"):
        run_from_options(settings=[f"{path.partition('.')[2]}=1"])


def test_regularizer_loss_setting_is_rejected() -> None:
    with pytest.raises(ValueError, match="--loss"):
        run_from_options(settings={"regularizer.loss": "cosface"})
