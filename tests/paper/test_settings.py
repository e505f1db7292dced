"""Every value of the paper's section C.2, read back from the runs; the table is typed from it."""

import pytest

import proxysynth as ps
from protocol_transforms import CLASSIFICATION, CONVENTIONAL, MLRC
from proxysynth.models.backbones import BACKBONES
from proxysynth.paper import settings
from proxysynth.paper.scale import SCALES
from proxysynth.paper.settings import classified_loss, trained_loss
from proxysynth.protocols.mlrc.settings import mlrc_run
from proxysynth.regularizers import ManifoldMixup, VirtualSoftmax
from proxysynth.training import Run
from proxysynth.training.prepare import evaluation_transform, make_network, training_transform
from proxysynth.training.run import KINDS
from proxysynth.values import decode, encode
from training.test_prepare import FILES, HELD

# C.2, "Conventional Evaluation": what the text states, set by set.
STATED = {
    #           lr    frozen  decay at  decay
    "cub200": (1e-4, True, (20,), 0.1),
    "cars196": (1e-4, True, (50,), 0.1),
    "sop": (1e-3, False, (20,), 0.1),
    "inshop": (1e-3, False, (60,), 0.1),
}
# C.2: scale and margins of the margin family.
MARGINS = {
    "sphereface": {"scale": 30.0, "m1": 1.05},
    "cosface": {"scale": 23.0, "m3": 0.1},
    "arcface": {"scale": 23.0, "m2": 0.1},
    "norm_softmax": {"scale": 23.0},
}
# Section D.4 and Table C: the best alpha and mu of each set.
BEST = {"cifar10": (1.0, 0.5), "cifar100": (1.5, 0.75), "svhn": (0.4, 1.0),
        "tiny_imagenet": (2.0, 0.25)}  # fmt: skip


PAPER = SCALES["paper"].with_roots({name: f"/data/{name}" for name in (*STATED, *BEST)})


def conventional(name, loss="norm_softmax", regularizer="none", **changes):
    return PAPER.run(name, trained_loss(loss, regularizer), **changes)


def classification(name, regularizer="none", **changes):
    return PAPER.run(name, classified_loss(name, regularizer), **changes)


@pytest.mark.parametrize("name", STATED)
def test_conventional_settings(name):
    run = conventional(name, "norm_softmax", "proxy_synthesis")
    assert (run.lr, run.freeze_batch_norm, run.decay_epochs, run.decay) == STATED[name]
    assert run.data == f"{name}:/data/{name}"
    assert (run.backbone, run.pretrained, run.dim, run.pooling) == (
        "bn_inception", True, 512, "average")  # fmt: skip
    assert (run.optimizer, run.batch_size, run.schedule) == ("adam", 128, "step")
    assert (run.loss.alpha, run.loss.mu) == (0.4, 1.0)
    assert run.proxy_lr == pytest.approx(100 * run.lr)
    assert run.epochs > max(run.decay_epochs)


def test_proxy_anchor_settings_match_its_paper():
    for name, lr in {"cub200": 1e-4, "cars196": 1e-4, "sop": 6e-4, "inshop": 6e-4}.items():
        run = conventional(name, "proxy_anchor")
        assert (run.batch_size, run.optimizer, run.pooling) == (180, "adamw", "both")
        assert (run.warmup_epochs, run.lr, run.weight_decay) == (1, lr, 1e-4)
        assert run.loss == ps.ProxyAnchor(scale=32.0, margin=0.1)
    assert conventional("cub200", "proxy_anchor").decay_epochs == (10, 20, 30, 40, 50)
    assert conventional("sop", "proxy_anchor").decay == 0.25


@pytest.mark.parametrize("loss", MARGINS)
def test_loss_margins(loss):
    made = conventional("cars196", loss).loss
    assert {name: getattr(made, name) for name in MARGINS[loss]} == MARGINS[loss]


def test_transforms_match_the_protocols():
    run = conventional("cub200", backbone="conv4", pretrained=False)  # quick to make
    net = make_network(run, None)
    assert training_transform(run, net, FILES) == CONVENTIONAL.train
    assert evaluation_transform(run, net, FILES) == CONVENTIONAL.test
    assert BACKBONES["bn_inception"].preprocess == CONVENTIONAL.pixels == MLRC.pixels
    run = mlrc_run("cub200:data", "norm_softmax", backbone="conv4", pretrained=False)
    net = make_network(run, None)
    assert training_transform(run, net, FILES) == MLRC.train
    assert evaluation_transform(run, net, FILES) == MLRC.test
    for name, pair in CLASSIFICATION.items():
        run = classification(name, width=0.25)
        files = FILES if name == "tiny_imagenet" else HELD
        net = make_network(run, None)
        assert training_transform(run, net, files) == pair.train
        assert evaluation_transform(run, net, files) == pair.test
        assert net.preprocess == pair.pixels


def test_mlrc_settings():
    run = mlrc_run("sop:data", "arcface")
    assert (run.backbone, run.dim, run.image_size) == ("bn_inception", 128, 227)
    assert (run.batch_size, run.optimizer, run.lr) == (32, "rmsprop", 1e-6)
    assert run.freeze_batch_norm
    assert run.patience > 0
    assert (run.report_epoch, run.best_by) == ("best", "map@r")


@pytest.mark.parametrize("name", BEST)
def test_classification_settings(name):
    run = classification(name, regularizer="proxy_synthesis")
    assert (run.loss.alpha, run.loss.mu) == BEST[name]
    assert (run.task, run.backbone, run.loss.loss) == (
        "classification", "preact_resnet18", ps.Softmax())  # fmt: skip
    assert (run.optimizer, run.lr, run.momentum, run.weight_decay) == ("sgd", 0.1, 0.9, 1e-4)
    assert (run.batch_size, run.epochs) == (100, 2000)
    steps = (1000, 1500) if name == "tiny_imagenet" else (500, 1000, 1500)
    assert run.decay_epochs == steps
    assert classification(name, regularizer="virtual_softmax").loss == VirtualSoftmax(
        ps.Softmax(), clip=None
    )
    mixed = classification(name, regularizer="manifold_mixup").loss
    assert mixed == ManifoldMixup(ps.Softmax(), alpha=0.2 if name == "tiny_imagenet" else 2.0)
    assert classification(name, regularizer="input_mixup").loss.alpha == 1.0


@pytest.mark.parametrize("loss", sorted(ps.LOSSES))
@pytest.mark.parametrize("regularizer", ["none", "proxy_synthesis"])
def test_runs_of_every_cell_round_trip(loss, regularizer):
    for name in STATED:
        for run in (
            conventional(name, loss, regularizer),
            mlrc_run(f"{name}:data", loss, regularizer),
        ):
            assert isinstance(run, Run)
            assert decode(encode(run), KINDS) == run


def test_every_setting_is_a_field_of_a_run():
    for name in (*STATED, *BEST):
        for loss in ("norm_softmax", "proxy_anchor"):
            assert set(settings.paper_settings(name, loss)) <= set(Run.__dataclass_fields__)


def test_unknown_name_is_rejected():
    with pytest.raises(ValueError, match="'cars'"):
        settings.paper_settings("cars")
    with pytest.raises(ValueError, match="'arc'"):
        trained_loss("arc")
