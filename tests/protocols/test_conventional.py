import numpy as np
import pytest

from proxysynth.data import glyphs
from proxysynth.protocols import Conventional, own_splits
from proxysynth.retrieval import evaluate
from proxysynth.training import Run, Split, load, read_result, train
from training.tiny_pictures import pictures


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("protocol")
    split = Split(train_classes=6, test_classes=5, faces_per_class=8)
    run = Run(split=split, epochs=1, dim=16, width=0.25, batch_size=16)
    train(run, folder / "run")
    return folder / "run", glyphs(6, 5, faces_per_class=8)


def test_metrics_match_the_result_of_the_run(trained):
    folder, splits = trained
    assert Conventional()(load(folder), splits.query).metrics == read_result(folder).metrics


def test_own_splits_match_the_training_data(trained):
    folder, splits = trained
    assert own_splits(load(folder)).fingerprint() == splits.fingerprint()


def test_images_skipped_in_training_are_skipped_again(tmp_path, monkeypatch):
    root = pictures(tmp_path / "set", classes=6, each=3)
    for c in range(6):
        (root / f"class{c}" / "00.png").write_bytes(b"no picture")
    run = Run(
        data=str(root), skip_bad=True, epochs=1, dim=4, width=0.25, batch_size=4, image_size=32
    )
    result = train(run, tmp_path / "run")
    model = load(tmp_path / "run")
    splits = own_splits(model)
    assert splits.fingerprint() == result.data["fingerprint"]
    assert Conventional()(model, splits.query).metrics == pytest.approx(result.metrics)


def test_other_ks_and_nmi(trained):
    folder, splits = trained
    metrics = Conventional(ks=(1, 16), nmi=True)(load(folder), splits.query).metrics
    assert {"recall@1", "recall@16", "nmi"} <= metrics.keys()
    assert "recall@2" not in metrics


def test_query_and_gallery(trained):
    folder, splits = trained
    even = np.arange(len(splits.query)) % 2 == 0
    query, gallery = (
        splits.query.take(np.flatnonzero(even)),
        splits.query.take(np.flatnonzero(~even)),
    )
    tested = Conventional()(load(folder), query, gallery)
    assert tested.metrics == evaluate(
        tested.query, query.labels, gallery=tested.gallery, gallery_labels=gallery.labels
    )
    assert tested.gallery.shape == (len(gallery), 16)
