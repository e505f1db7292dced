import dataclasses
import json
import os
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS
from proxysynth.cli.config import field_help
from proxysynth.training import KINDS, Run, Split
from proxysynth.training.defaults import run_from_options
from proxysynth.values import decode, encode


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("synthesis", [False, True])
def test_every_loss_json_round_trip(name, synthesis):
    loss = EVERY_LOSS[name]
    loss = ps.ProxySynthesis(loss, mu=0.5, lam=0.3) if synthesis else loss
    run = Run(loss=loss, split=Split(unseen_classes=("a", "b")), crop_scale=(0.2, 1.0), ks=(1, 10))
    back = decode(json.loads(json.dumps(encode(run))), KINDS)
    assert back == run
    assert back.identity == run.identity


def test_paths_become_text():
    run = Run(data=Path("photos"), init=Path("runs") / "a")
    assert (run.data, run.init) == ("photos", os.path.join("runs", "a"))
    assert run == Run(data="photos", init=os.path.join("runs", "a"))
    with pytest.raises(ValueError, match="data"):
        Run(data=None)


def test_identity_depends_on_every_field():
    other = {
        "data": "photos",
        "split": Split(seed=1),
        "loss": ps.CosFace(),
        "backbone": "resnet50",
        "pooling": "max",
        "pretrained": True,
        "weights": "w.safetensors",
        "pixels": "centred",
        "sampler": "m_per_class",
        "optimizer": "sgd",
        "schedule": "constant",
        "precision": "auto",
        "report_epoch": "last",
        "task": "classification",
        "transforms": "mlrc",
        "best_by": "recall@1",
        "crop_scale": (0.5, 1.0),
        "flip": 0.25,
        "decay_epochs": (3,),
        "ks": (1,),
        "embedding_lr": 1.0,
        "clip_norm": 1.0,
        "clip_value": 1.0,
        "image_size": 64,
        "cache_side": 64,
        "epochs": 31,
        "batch_size": 64,
        "negatives": 0.5,
        "proxy_optimizer": "rowwise",
        "init": "runs/earlier",
        "extended": (3,),
        "interpolate": 0.5,
        "freeze": ("conv1",),
        "layer_decay": 0.5,
    }
    needs = {"negatives": {"shard_proxies": True}}
    base = Run(report_epoch="best")  # patience needs it
    seen = {base.identity}
    for field in dataclasses.fields(Run):
        value = getattr(base, field.name)
        if field.name not in other:
            other[field.name] = not value if isinstance(value, bool) else value / 2 + 1
            if isinstance(value, int) and not isinstance(value, bool):
                other[field.name] = value + 1
        changed = {"momentum": 0.5}.get(field.name, other[field.name])
        made = {field.name: changed, **needs.get(field.name, {})}
        seen.add(dataclasses.replace(base, **made).identity)
    assert len(seen) == len(dataclasses.fields(Run)) + 1


def test_fields_are_parsed_from_text():
    run = run_from_options(
        settings=["loss.scale=11", "split.unseen_fraction=0.3", "decay_epochs=10,20"]
    )
    assert run.loss.loss.scale == 11.0
    assert run.split.unseen_fraction == 0.3
    assert run.decay_epochs == (10, 20)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"epochs": True}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"lr": 0.0}, "lr"),
        ({"lr": None}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"proxy_lr": -1.0}, "proxy_lr"),
        ({"embedding_lr": 0.0}, "embedding_lr"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"optimizer": "adamax"}, "optimizer"),
        ({"schedule": "linear"}, "schedule"),
        ({"schedule": "step"}, "decay_epochs"),
        ({"decay_epochs": (0,)}, "decay_epochs"),
        ({"ks": (0,)}, "ks"),
        ({"momentum": 1.0}, "momentum"),
        ({"report_epoch": "first"}, "report_epoch"),
        ({"best_by": "accuracy"}, "best_by"),
        ({"sampler": "m_per_class", "m": 5}, "multiple of m=5"),
        ({"loss": "norm_softmax"}, "loss"),
        ({"precision": "float16"}, "precision"),
        ({"dim": 0}, "dim"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"seed": 2**63}, "seed"),
        ({"flip": 1.5}, "flip"),
        ({"crop_scale": (0.5, 0.2)}, "crop_scale"),
        ({"crop_scale": (0.5,)}, "crop_scale"),
    ],
)
def test_invalid_field_is_reported_in_one_line(wrong, named):
    with pytest.raises(ValueError, match=named) as caught:
        Run(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fraction", [1.0, -0.5])
def test_invalid_split_fraction_is_rejected(fraction):
    with pytest.raises(ValueError, match="unseen_fraction"):
        Split(unseen_fraction=fraction)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query_faces", 1.5),
        ("test_faces", 2.5),
        ("pictures_per_class", 1.5),
        ("pictures_per_class", -1),
        ("distortion", "1"),
        ("distortion", -0.5),
        ("fold", 1.5),
        ("folds", "4"),
        ("validation_seed", 0.5),
    ],
)
def test_invalid_split_field_is_rejected(name, value):
    with pytest.raises(ValueError, match=name):
        Split(**{name: value})


def test_split_options_contain_only_changed_fields():
    assert Split().options() == {}
    assert Split(seed=0, unseen_classes=("a",), validation_fraction=0.4).options() == {
        "seed": 0,
        "unseen_classes": ("a",),
    }


def test_module_as_backbone_is_rejected():
    with pytest.raises(ValueError, match="backbone"):
        Run(backbone=torch.nn.Identity())


def test_a_new_layer_is_dropped_by_interpolation():
    dropped = Run(dim=64, interpolate="by_classes")
    assert dropped.drops_layer
    assert not dataclasses.replace(dropped, dim=None).drops_layer
    assert not dataclasses.replace(dropped, init="earlier").drops_layer


@pytest.mark.parametrize("kind", [Run, Split])
def test_help_explains_none_for_optional_fields(kind):
    optional = [name for name, hint in get_type_hints(kind).items() if NoneType in get_args(hint)]
    about = field_help(kind)
    assert [name for name in optional if "None:" not in about[name]] == []
