"""Classification, folds of the seen classes, patience, and the transforms of each protocol."""

from dataclasses import replace

import pytest
import torch

from proxysynth.data import AsIs, CenterCrop, PadCrop, RandomResizedCrop
from proxysynth.losses import NormSoftmax, Softmax
from proxysynth.protocols import Conventional, own_splits
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training import Run, Split, load, read_result, train
from proxysynth.training.inference import nearest_class
from proxysynth.training.prepare import evaluation_transform, make_network, training_transform
from training.test_prepare import FILES, HELD, prepared


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    split = Split(train_classes=6, test_classes=5, test_faces=4)
    run = Run(split=split, epochs=6, width=0.25, dim=None, batch_size=16, loss=Softmax(),
              task="classification")  # fmt: skip
    folder = tmp_path_factory.mktemp("classifier") / "run"
    return run, folder, train(run, folder)


def test_accuracy_is_the_fraction_of_correct_predictions(classifier):
    _, folder, result = classifier
    model = load(folder)
    splits = own_splits(model)
    x = model.embed(splits.query.pixels)
    logits = x @ model.proxies.T
    right = (logits.argmax(1).numpy() == splits.query.labels).mean()
    assert result.metrics["accuracy"] == pytest.approx(right)
    assert right > 2 / 6  # twice what guessing gives
    assert splits.train.classes == splits.query.classes
    tested = Conventional()(model, splits.query)
    assert tested.metrics["accuracy"] == pytest.approx(right)
    assert "unseen" not in result.verdict


def test_regularizer_predicts_with_its_inner_loss():
    x, p = torch.randn(7, 5), torch.randn(4, 5)
    plain = nearest_class(NormSoftmax(), p)(x)
    cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(p).T
    assert plain.tolist() == cosines.argmax(1).tolist()
    assert nearest_class(ProxySynthesis(NormSoftmax()), p)(x).tolist() == plain.tolist()


def test_classification_requires_seen_test_classes(tmp_path):
    run = Run(split=Split(train_classes=6, test_classes=5), task="classification")
    with pytest.raises(ValueError, match="task=classification"):
        train(run, tmp_path / "run")


def test_classifier_validation_holds_out_images(classifier):
    ready = prepared(replace(classifier[0], report_epoch="best", best_by="accuracy"))
    assert ready.splits.validation.classes == ready.splits.train.classes
    assert len(ready.splits.validation) + len(ready.splits.train) == 6 * 12


def test_fold_excludes_unseen_classes(glyph_run, tmp_path):
    split = replace(glyph_run.split, fold=1, folds=3)
    run = replace(glyph_run, split=split, report_epoch="best")
    result = train(run, tmp_path / "run")
    whole = prepared(glyph_run).splits
    splits = own_splits(load(tmp_path / "run"))
    assert set(splits.train.classes) | set(splits.query.classes) == set(whole.train.classes)
    assert len(splits.query.classes) == 2
    assert result.validation == result.metrics  # one evaluation serves as both
    assert "held out" in result.why


def test_patience_stops_early(glyph_run, tmp_path):
    split = replace(glyph_run.split, fold=0, folds=3)
    # Nothing is learned, so the first evaluation stays the best.
    run = replace(glyph_run, split=split, report_epoch="best", patience=2, epochs=50, lr=1e-30,
                  proxy_lr=1e-30, freeze_batch_norm=True)  # fmt: skip
    result = train(run, tmp_path / "run")
    assert result.epoch == 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert read_result(tmp_path / "run") == result


def test_train_requires_a_run(tmp_path):
    with pytest.raises(ValueError, match="takes a Run"):
        train("photos", tmp_path / "run")


def test_patience_requires_best_report_epoch():
    with pytest.raises(ValueError, match="report_epoch"):
        Run(patience=3)


def test_split_limits_number_of_images(glyph_run):
    split = replace(glyph_run.split, train_pictures=18, test_pictures=10)
    splits = prepared(replace(glyph_run, split=split)).splits
    assert splits.train.counts().tolist() == [3] * 6
    assert splits.query.counts().tolist() == [2] * 5


def test_protocol_transforms():
    run = Run(image_size=227, augment=True, transforms="mlrc", crop_scale=(0.16, 1.0))
    net = make_network(run, None)
    assert training_transform(run, net, FILES) == RandomResizedCrop(227, (0.16, 1.0), resize=256)
    assert evaluation_transform(run, net, FILES) == CenterCrop(256, 227)
    small = Run(augment=True, transforms="pad_crop", flip=0.0)
    net = make_network(small, 32)
    assert training_transform(small, net, HELD) == PadCrop(32, 2, flip=0.0)
    assert evaluation_transform(small, net, HELD) == AsIs()
    large = replace(small, image_size=64)
    net = make_network(large, None)
    assert training_transform(large, net, FILES) == PadCrop(64, 4, flip=0.0)
    assert evaluation_transform(large, net, FILES) == CenterCrop(64, 64)
