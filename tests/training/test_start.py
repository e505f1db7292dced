"""Starting from an earlier run, interpolation with the start, and more epochs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import proxysynth as ps
from proxysynth.losses import NormSoftmax, SoftTriple
from proxysynth.regularizers import ProxySynthesis
from proxysynth.tensor_files import read_tensors
from proxysynth.training import Run, Split, WrongFolder, read_result, read_run, train
from proxysynth.training.callbacks import Silent
from proxysynth.training.inference import embed
from proxysynth.training.prepare import make_network, open_splits, prepare
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import MODEL
from proxysynth.training.start import estimate_statistics, make_start
from training.sameness import assert_same_outcome, assert_same_tensors
from training.stopping import Stopped, Stopper


def ready_of(run, net):
    return prepare(run, open_splits(run), net, Resources(threads=1, workers=0), Silent())


def small(glyph_run, **changes):
    return replace(glyph_run, **{"freeze_batch_norm": True, **changes})


# Interpolation


@pytest.mark.parametrize("changes", [{}, {"dim": None}, {"freeze_batch_norm": False}])
def test_interpolation_at_zero_gives_untrained_features(glyph_run, tmp_path, changes):
    run = small(glyph_run, interpolate=0.0, **changes)
    result = train(run, tmp_path / "run")
    assert result.metrics == result.untrained
    assert result.interpolation["a"] == 0.0
    net = make_network(run, 32)
    query = ready_of(run, net).query
    expected = F.normalize(embed(net, query, features=True), dim=1)
    model = ps.load(tmp_path / "run")
    assert torch.equal(embed(model.embedder, query), expected)
    assert model.embedder.dim == net.channels
    assert model.proxies.shape == (6, net.channels)


def test_interpolation_at_one_gives_trained_backbone(glyph_run, tmp_path):
    plain, run = small(glyph_run), small(glyph_run, interpolate=1.0)
    train(plain, tmp_path / "plain")
    train(run, tmp_path / "run")
    ends = [read_tensors(tmp_path / name / MODEL)[0] for name in ("plain", "run")]
    backbones = [{k: v for k, v in end.items() if "backbone" in k} for end in ends]
    assert_same_tensors(*backbones)
    assert not any("embedding" in key for key in ends[1])
    # Without an embedding layer, that is the trained model.
    plain, run = (replace(each, dim=None) for each in (plain, run))
    assert train(plain, tmp_path / "a").metrics == train(run, tmp_path / "b").metrics


def test_interpolation_mixes_every_weight_linearly(glyph_run, tmp_path):
    run = small(glyph_run, interpolate=0.3)
    result = train(run, tmp_path / "run")
    train(replace(run, interpolate=None), tmp_path / "plain")
    start = make_network(run, 32).double().state_dict()
    trained = ps.load(tmp_path / "plain").embedder.double().state_dict()
    made = ps.load(tmp_path / "run").embedder.double().state_dict()
    for key, value in made.items():
        if value.is_floating_point() and "running" not in key:
            torch.testing.assert_close(
                value, 0.7 * start[key] + 0.3 * trained[key], atol=1e-6, rtol=0
            )
    assert [point["a"] for point in result.interpolation["points"]] == [0, 0.25, 0.3, 0.5, 0.75, 1]
    point = next(p for p in result.interpolation["points"] if p["a"] == 0.3)
    assert point["metrics"] == result.metrics
    assert read_result(tmp_path / "run") == result


def test_interpolated_proxies_are_class_mean_embeddings(glyph_run, tmp_path):
    run = small(glyph_run, interpolate=0.5, loss=SoftTriple(k=2))
    train(run, tmp_path / "run")
    model = ps.load(tmp_path / "run")
    loader = ready_of(run, model.embedder).train
    x, y = embed(model.embedder, loader).double().numpy(), loader.listing.labels
    means = np.stack([x[y == c].mean(0) for c in range(6)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert model.proxies.shape == (6, 2, x.shape[1])
    for k in range(2):
        np.testing.assert_allclose(model.proxies[:, k], means, atol=1e-6)


def test_batch_norm_statistics_are_estimated_from_images(glyph_run):
    run = replace(glyph_run, interpolate=0.5)
    net = make_network(run, 32)
    loader = ready_of(run, net).train
    (batch,) = loader.batches([np.arange(48)])
    images = batch.inputs(torch.device("cpu"))
    estimate_statistics(net, loader, seed=0)
    first = next(m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d))
    inputs = []
    handle = first.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    with torch.no_grad():
        net.eval().features(images)
    handle.remove()
    maps = inputs[0].double()
    torch.testing.assert_close(
        first.running_mean.double(), maps.mean((0, 2, 3)), rtol=1e-4, atol=1e-6
    )
    variance = maps.transpose(0, 1).flatten(1).var(1)
    torch.testing.assert_close(first.running_var.double(), variance, rtol=1e-4, atol=1e-6)
    assert first.momentum == 0.1


def test_only_changed_batch_norm_statistics_are_reestimated(glyph_run):
    run = replace(glyph_run, interpolate=0.5)
    start = make_start(run, 32)
    net, loader = start.net, ready_of(run, start.net).train
    statistics = [key for key in start.state if "running_mean" in key]
    kept = start.interpolated(net, 0.5, loader, 0).state_dict()
    assert all(torch.equal(kept[key], start.state[key]) for key in statistics)
    for key in statistics:
        net.state_dict()[key] += 1.0
    made = start.interpolated(net, 0.5, loader, 0).state_dict()
    halfway = {key: start.state[key] + 0.5 for key in statistics}
    assert not any(torch.allclose(made[key], halfway[key]) for key in statistics)


def test_auto_interpolation_is_selected_on_held_out_classes(glyph_run, tmp_path):
    split = replace(glyph_run.split, train_classes=10)
    run = small(glyph_run, split=split, interpolate="auto", lr=0.05, epochs=3)
    result = train(run, tmp_path / "run")
    held = result.interpolation
    scores = {point["a"]: point["validation"]["map@r"] for point in held["points"]}
    assert scores[held["a"]] == max(scores.values())
    point = next(p for p in held["points"] if p["a"] == held["a"])
    assert result.metrics == point["metrics"]
    assert len(read_run(tmp_path / "run").classes) == 8
    assert "held out" in result.why


def test_damaged_interpolated_model_is_rejected_and_rebuilt(glyph_run, tmp_path):
    run = small(glyph_run, interpolate=0.5)
    train(run, tmp_path / "run")
    path = tmp_path / "run" / MODEL
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\0\1\2\3")
    with pytest.raises(ValueError, match="damaged|checksum"):
        ps.load(tmp_path / "run")
    train(run, tmp_path / "run")
    assert path.read_bytes() == whole


def test_interpolation_depends_on_number_of_classes(glyph_run, tmp_path):
    run = small(glyph_run, interpolate="by_classes")
    assert [run.interpolation(classes) for classes in (2, 39, 40, 1000)] == [0.75, 0.75, 1, 1]
    few, fixed = train(run, tmp_path / "few"), train(replace(run, interpolate=0.75), tmp_path / "a")
    assert few.data["train"]["classes"] < 40
    assert few.metrics == fixed.metrics
    assert few.interpolation == fixed.interpolation
    many = train(replace(run, interpolate=1.0), tmp_path / "many")
    assert [point["a"] for point in many.interpolation["points"]] == [1.0]
    assert many.metrics != few.metrics
    assert "interpolated at a = " in few.why
    assert "interpolated" not in many.why


@pytest.mark.parametrize(
    "changes", [{"interpolate": 1.5}, {"interpolate": "best"}, {"interpolate": -0.1}]
)
def test_invalid_interpolate_is_rejected(changes):
    with pytest.raises(ValueError, match="interpolate"):
        Run(**changes)
    with pytest.raises(ValueError, match="interpolate"):
        Run(interpolate=0.5, task="classification")


# An earlier run


def test_init_starts_from_earlier_run(glyph_run, finished, tmp_path):
    split = replace(glyph_run.split, train_classes=8)
    run = replace(glyph_run, split=split, init=str(finished), lr=1e-9, proxy_lr=1e-9, epochs=1)
    result = train(run, tmp_path / "run")
    earlier, model = ps.load(finished), ps.load(tmp_path / "run")
    shared = [name for name in model.classes if name in earlier.classes]
    assert 0 < len(shared) < len(model.classes)
    for name in shared:
        theirs = earlier.proxies[earlier.classes.index(name)]
        torch.testing.assert_close(model.proxies[model.classes.index(name)], theirs)
    # New classes: the mean embedding of their pictures.
    loader = ready_of(run, earlier.embedder).train
    x, y = embed(earlier.embedder, loader).double(), loader.listing.labels
    for name in set(model.classes) - set(shared):
        c = model.classes.index(name)
        mean = F.normalize(x[y == c].mean(0), dim=0) * earlier.proxies.norm(dim=1).mean()
        torch.testing.assert_close(model.proxies[c].double(), mean, rtol=1e-4, atol=1e-5)
    # Before training, it is as good as the earlier run.
    query = ready_of(run, earlier.embedder).query
    x = embed(earlier.embedder, query)
    assert ps.evaluate(x, query.listing.labels)["map@r"] == result.untrained["map@r"]


def test_init_makes_multiple_proxies_per_class_distinct(glyph_run, finished, tmp_path):
    run = replace(glyph_run, init=str(finished), loss=SoftTriple(k=3), epochs=1)
    train(run, tmp_path / "run")
    proxies = ps.load(tmp_path / "run").proxies
    assert proxies.shape[:2] == (6, 3)
    assert torch.pdist(proxies[0]).min() > 1e-3


def test_init_records_classes_seen_by_earlier_run(glyph_run, finished, tmp_path):
    other = Split(seed=1, train_classes=6, test_classes=5, faces_per_class=8)
    seen = set(open_splits(glyph_run).train.classes)
    run = replace(glyph_run, split=other, init=str(finished), epochs=1)
    result = train(run, tmp_path / "run")
    known = seen & set(open_splits(run).query.classes)
    assert result.data["shared_classes"] == len(known)
    assert set(read_run(tmp_path / "run").all_seen) >= seen
    again = replace(run, init=str(tmp_path / "run"))
    train(again, tmp_path / "again")
    assert set(read_run(tmp_path / "again").all_seen) >= seen


def test_init_from_different_network_is_rejected(glyph_run, finished, tmp_path):
    with pytest.raises(ValueError, match="init"):
        train(replace(glyph_run, init=str(finished), dim=8), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="init"):
        Run(init="a", weights="b")


def test_init_network_is_interpolated_with_embedding_layer(glyph_run, finished, tmp_path):
    run = replace(glyph_run, init=str(finished), interpolate=0.0, epochs=1)
    result = train(run, tmp_path / "run")
    assert result.metrics == result.untrained
    ends = [read_tensors(f / MODEL)[0] for f in (finished, tmp_path / "run")]
    nets = [{k: v for k, v in end.items() if k.startswith("net.")} for end in ends]
    counted = [{k: v for k, v in net.items() if "num_batches" not in k} for net in nets]
    assert_same_tensors(*counted)


# More epochs


@pytest.mark.parametrize("schedule", ["constant", "cosine", "one_cycle"])
def test_extended_run_matches_fresh_run(glyph_run, tmp_path, schedule):
    run = replace(glyph_run, schedule=schedule, epochs=2)
    train(run, tmp_path / "run")
    longer = run.extend(4)
    assert (longer.epochs, longer.extended) == (4, (2,))
    result = train(longer, tmp_path / "run")
    assert result.epoch == 4
    train(longer, tmp_path / "fresh")
    assert_same_tensors(*(read_tensors(tmp_path / name / MODEL)[0] for name in ("run", "fresh")))
    if schedule == "constant":
        train(replace(run, epochs=4), tmp_path / "long")
        assert_same_outcome(tmp_path / "run", tmp_path / "long")
    with pytest.raises(WrongFolder, match="another run"):
        train(run, tmp_path / "run")
    assert train(longer, tmp_path / "run") == result


def test_old_model_is_kept_until_extension_finishes(glyph_run, tmp_path):
    folder = tmp_path / "run"
    train(glyph_run, folder)
    before = (folder / MODEL).read_bytes()

    with pytest.raises(Stopped):
        train(glyph_run.extend(4), folder, progress=Stopper(4))  # within the fourth epoch
    assert (folder / MODEL).read_bytes() == before
    assert ps.load(folder).epoch == glyph_run.epochs
    assert train(glyph_run.extend(4), folder).epoch == 4
    assert ps.load(folder).epoch == 4


def test_invalid_extension_is_rejected(glyph_run):
    with pytest.raises(ValueError, match="extended"):
        glyph_run.extend(glyph_run.epochs)
    with pytest.raises(ValueError, match="extended"):
        Run(epochs=5, extended=(5,))


# All classes


def test_all_classes_run_reports_evaluated_metrics(photo_run, tmp_path):
    folder = tmp_path / "shop"
    progress = Stopper()
    result = train(photo_run, folder, all_classes=True, progress=progress)
    assert f'"{folder / "evaluated"}"' in "".join(progress.messages)
    assert "Not evaluated" not in "".join(progress.messages)
    evaluated = read_result(folder / "evaluated")
    assert result.metrics == evaluated.metrics
    assert result.untrained == evaluated.untrained
    assert result.evaluated == evaluated.run
    assert result.tested == "unseen classes"
    assert len(ps.load(folder).classes) == 6
    assert len(ps.load(folder / "evaluated").classes) == 3
    train(photo_run, tmp_path / "alone")
    assert_same_outcome(folder / "evaluated", tmp_path / "alone")
    split = replace(photo_run.split, unseen_fraction=0.0)
    alone = train(replace(photo_run, split=split), tmp_path / "all")
    assert alone.metrics == {}
    models = [read_tensors(place / MODEL)[0] for place in (folder, tmp_path / "all")]
    assert_same_tensors(*models)
    assert train(photo_run, folder, all_classes=True) == result
    with pytest.raises(WrongFolder):
        train(photo_run, tmp_path / "alone", all_classes=True)
    longer = train(photo_run.extend(4), folder, all_classes=True)
    assert (longer.epoch, read_result(folder / "evaluated").epoch) == (4, 4)


def test_all_classes_run_keeps_choices_from_held_out_classes(glyph_run, tmp_path):
    split = replace(glyph_run.split, train_classes=10)
    run = small(glyph_run, split=split, interpolate="auto", report_epoch="best", epochs=3)
    result = train(run, tmp_path / "run", all_classes=True)
    evaluated = read_result(tmp_path / "run" / "evaluated")
    made = read_run(tmp_path / "run").run
    assert made.interpolate == evaluated.interpolation["a"]
    assert made.epochs == evaluated.epoch
    assert result.interpolation == evaluated.interpolation
    assert len(read_run(tmp_path / "run").classes) == 15


def test_all_classes_run_continues_with_new_classes(photo_run, tmp_path):
    """All classes now, more classes later: the evaluated run starts from the evaluated one."""
    first = replace(photo_run, split=Split(seen_classes=("class0", "class1"),
                                           unseen_classes=("class2", "class3")))  # fmt: skip
    train(first, tmp_path / "one", all_classes=True)
    second = replace(photo_run, init=str(tmp_path / "one"), epochs=1)
    result = train(second, tmp_path / "two", all_classes=True)
    assert read_run(tmp_path / "two" / "evaluated").run.init.endswith("evaluated")
    assert read_run(tmp_path / "two").run.init == str(tmp_path / "one")
    resumed = read_run(tmp_path / "two" / "evaluated").run
    assert train(resumed, tmp_path / "two", all_classes=True) == result
    seen = {"class0", "class1"} & set(open_splits(second).query.classes)
    assert result.data["shared_classes"] == len(seen)


def test_training_with_fewer_than_two_unseen_classes(photo_run, photos, tmp_path):
    split = Split(seen_classes=("class0", "class1", "class2"), unseen_classes=("class3",))
    run = replace(photo_run, split=split, epochs=1, interpolate="by_classes")
    result = train(run, tmp_path / "run")
    assert result.metrics == result.untrained == {}
    assert "Not evaluated" in result.verdict
    assert any("Not evaluated" in note for note in result.notes)
    assert len(ps.load(tmp_path / "run").embed(photos / "class0" / "0.png")) == 1
    assert train(run, tmp_path / "all", all_classes=True).metrics == {}
    one, every = ps.load(tmp_path / "run").embedder, ps.load(tmp_path / "all")
    assert len(every.classes) == 4
    assert every.embedder.dim == one.dim == one.channels
    with pytest.raises(ValueError, match="best_on_test"):
        train(replace(run, report_epoch="best_on_test"), tmp_path / "best")


def test_proxy_synthesis_with_two_classes(photo_run, tmp_path):
    split = Split(seen_classes=("class0", "class1"), unseen_fraction=0.0)
    run = replace(photo_run, split=split, epochs=1, loss=ProxySynthesis(NormSoftmax()))
    assert train(run, tmp_path / "run").epoch == 1
