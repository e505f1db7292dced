import errno
import json
import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import proxysynth as ps
from proxysynth import files, tensor_files
from proxysynth.files import locked
from proxysynth.models.backbones import make_embedder
from proxysynth.retrieval import evaluate
from proxysynth.tensor_files import read_tensors
from proxysynth.training import (
    NotFinite,
    Resources,
    Run,
    Split,
    TrainingFailed,
    WrongFolder,
    inference,
    learner,
    read_metrics,
    read_result,
    read_run,
    train,
)
from proxysynth.training.checkpoint import Checkpoints
from proxysynth.training.inference import EmbeddingsNotFinite
from proxysynth.training.interrupts import Interrupted
from proxysynth.training.prepare import open_splits
from proxysynth.training.run_folder import CHECKPOINT, EMBEDDINGS
from training.sameness import assert_same_outcome, assert_same_tensors
from training.stopping import Stopped, Stopper, stopped_and_resumed
from training.tiny_pictures import pictures


def test_finished_run_writes_all_outputs(finished, glyph_run):
    result = read_result(finished)
    assert read_run(finished).run == glyph_run
    assert [line["epoch"] for line in read_metrics(finished)] == [1, 2]
    assert (result.epoch, result.epochs, result.chosen) == (2, 2, "last")
    assert result.data["train"] == {"pictures": 48, "classes": 6}
    assert result.data["query"] == {"pictures": 80, "classes": 5}
    assert result.device.startswith("cpu")
    assert {"recall@1", "recall@8", "r_precision", "map@r"} <= result.untrained.keys()
    tensors, about = read_tensors(finished / EMBEDDINGS)
    assert tensors["query"].shape == (80, 16)
    assert len(about["query"]) == 80
    assert len(about["classes"]) == 5
    assert evaluate(tensors["query"], tensors["query_labels"]) == result.metrics
    last = read_metrics(finished)[-1]
    assert {name: last[name] for name in result.metrics} == result.metrics


def test_epoch_line_ends_with_elapsed_and_remaining_time(glyph_run, tmp_path):
    progress = Stopper()
    train(glyph_run, tmp_path / "run", progress=progress)
    first, last = (line for line in progress.messages if line.startswith("epoch "))
    assert re.search(r"MAP@R [\d.]+  \d+ s elapsed, \d+ s left$", first)
    assert re.search(r"\d+ s elapsed$", last)


def test_untrained_metrics_use_initial_weights(finished, glyph_run):
    query = open_splits(glyph_run).query
    net = make_embedder("conv4", 16, width=0.25, seed=0).eval()
    numbers = (torch.from_numpy(query.pixels.copy()).float()[:, None] / 255 - 0.88) / 0.3
    with torch.inference_mode():
        maps = net.backbone(numbers)
    expected = evaluate(maps.mean((2, 3)), query.labels)
    assert read_result(finished).untrained == pytest.approx(expected)


def test_finished_run_returns_result_without_training(finished, glyph_run, monkeypatch):
    monkeypatch.setattr("proxysynth.training.prepare.open_splits", None)
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    assert train(glyph_run, finished) == read_result(finished)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before


def test_different_run_is_rejected(finished, glyph_run):
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    with pytest.raises(WrongFolder, match="epochs"):
        train(replace(glyph_run, epochs=3), finished)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before


def test_global_random_state_is_unchanged(glyph_run, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(replace(glyph_run, epochs=1), tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("at", [0, 2, 3, 4])
def test_resuming_in_any_epoch_matches_uninterrupted_run(finished, glyph_run, tmp_path, at):
    """Three batches an epoch: 0 and 2 stop in the first, 3 and 4 in the second."""
    stopped_and_resumed(glyph_run, tmp_path / "run", at)
    assert_same_outcome(tmp_path / "run", finished)


@pytest.mark.parametrize("every", [1, 2])
def test_resuming_within_an_epoch_matches_uninterrupted_run(finished, glyph_run, tmp_path, every):
    resources = Resources(checkpoint_steps=every)
    messages = stopped_and_resumed(glyph_run, tmp_path / "run", 5, resources)
    assert f"Resuming after epoch 1, step {5 if every == 1 else 4}." in messages
    assert_same_outcome(tmp_path / "run", finished)


@pytest.mark.parametrize("sampler", ["shuffled", "m_per_class"])
def test_resuming_with_workers_and_augmentation(photo_run, tmp_path, sampler):
    run = replace(photo_run, sampler=sampler, m=2, optimizer="adamw", warmup_epochs=1)
    resources = Resources(workers=3, checkpoint_steps=2)
    train(run, tmp_path / "unbroken", resources=resources)
    stopped_and_resumed(run, tmp_path / "broken", 7, resources)
    assert_same_outcome(tmp_path / "broken", tmp_path / "unbroken")


def test_resuming_with_another_backbone_and_two_threads(photo_run, tmp_path):
    run = replace(
        photo_run, backbone="efficientnet_lite0", width=1.0, epochs=1, freeze_batch_norm=True,
        weight_decay=1e-4, clip_norm=1.0, schedule="one_cycle",
    )  # fmt: skip
    resources = Resources(workers=2, threads=2, checkpoint_steps=2)
    train(run, tmp_path / "unbroken", resources=resources)
    stopped_and_resumed(run, tmp_path / "broken", 3, resources)
    assert_same_outcome(tmp_path / "broken", tmp_path / "unbroken")


def test_workers_do_not_change_results(photo_run, tmp_path):
    for workers in (0, 3):
        train(photo_run, tmp_path / f"{workers}", resources=Resources(workers=workers))
    assert_same_outcome(tmp_path / "0", tmp_path / "3")


def test_augmentation_changes_the_loss(photo_run, tmp_path):
    train(photo_run, tmp_path / "augmented")
    train(replace(photo_run, augment=False), tmp_path / "plain")
    one, other = (read_metrics(tmp_path / name)[-1] for name in ("augmented", "plain"))
    assert one["loss"] != other["loss"]


def test_different_seeds_give_different_losses(finished, glyph_run, tmp_path):
    train(replace(glyph_run, seed=1), tmp_path / "run")
    one, other = (read_metrics(folder)[-1]["loss"] for folder in (finished, tmp_path / "run"))
    assert one != other


def test_metrics_after_last_checkpoint_are_not_duplicated(
    finished, glyph_run, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", _stop_at_second(Checkpoints.save))
        with pytest.raises(Stopped):
            train(glyph_run, tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 2
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"half a li')
    train(glyph_run, tmp_path / "run")
    assert_same_outcome(tmp_path / "run", finished)


def _stop_at_second(save):
    calls = []

    def stop(self, state, tensors):
        calls.append(state)
        if len(calls) == 2:
            raise Stopped
        save(self, state, tensors)

    return stop


@pytest.mark.parametrize("report", ["best", "best_on_test"])
def test_best_epoch_is_reported(glyph_run, tmp_path, report):
    split = replace(glyph_run.split, validation_fraction=0.34)
    run = replace(glyph_run, report_epoch=report, epochs=4, lr=0.02, split=split)
    result = train(run, tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    scores = [line.get("validation", line)["map@r"] for line in lines]
    best = int(np.argmax(scores)) + 1
    assert result.epoch == best
    assert result.chosen == report
    assert {k: lines[best - 1][k] for k in result.metrics} == pytest.approx(result.metrics)
    assert ("validation" in lines[0]) == (report == "best")
    if report == "best":
        assert result.data["validation"] == {"pictures": 16, "classes": 2}
        assert result.data["train"]["classes"] == 4
        assert "held out" in result.why
    else:
        assert "optimistic" in result.why


def test_best_epoch_is_kept_after_resuming(glyph_run, tmp_path):
    run = replace(glyph_run, report_epoch="best_on_test", epochs=4, lr=0.05)
    unbroken = train(run, tmp_path / "unbroken")
    assert unbroken.epoch < 4  # otherwise going back is not tested
    stopped_and_resumed(run, tmp_path / "broken", 11)
    assert_same_outcome(tmp_path / "broken", tmp_path / "unbroken")


def test_evaluate_every_skips_epochs(glyph_run, tmp_path):
    run = replace(glyph_run, epochs=5, evaluate_every=2)
    train(run, tmp_path / "run")
    assert [line["epoch"] for line in read_metrics(tmp_path / "run")] == [2, 4, 5]
    stopped_and_resumed(run, tmp_path / "broken", 9)
    assert_same_outcome(tmp_path / "broken", tmp_path / "run")


def test_separate_query_and_gallery(tmp_path):
    for part in ("train", "query", "gallery"):
        pictures(tmp_path / "set" / part, classes=3, each=4)
    run = Run(data=str(tmp_path / "set"), epochs=1, dim=8, width=0.25, batch_size=4, image_size=32)
    result = train(run, tmp_path / "run")
    tensors, about = read_tensors(tmp_path / "run" / EMBEDDINGS)
    assert tensors["gallery"].shape == (12, 8)
    assert len(about["gallery"]) == 12
    expected = evaluate(
        tensors["query"],
        tensors["query_labels"],
        gallery=tensors["gallery"],
        gallery_labels=tensors["gallery_labels"],
    )
    assert result.metrics == expected


def test_changed_images_are_rejected_on_resume(tmp_path):
    root = pictures(tmp_path / "set")
    run = Run(data=str(root), epochs=2, dim=8, width=0.25, batch_size=4, image_size=32)
    with pytest.raises(Stopped):
        train(run, tmp_path / "run", progress=Stopper(5))  # after the first checkpoint
    shutil.copy(root / "class0" / "0.png", root / "class0" / "9.png")
    with pytest.raises(WrongFolder, match="have changed"):
        train(run, tmp_path / "run")


def test_unreadable_images_are_rejected_before_training(tmp_path):
    root = pictures(tmp_path / "set")
    (root / "class0" / "bad.png").write_bytes(b"not a picture")
    run = Run(data=str(root), epochs=1, dim=8, width=0.25, batch_size=4, image_size=32)
    with pytest.raises(ValueError, match=r"bad\.png"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
    result = train(replace(run, skip_bad=True), tmp_path / "run")
    assert any("bad.png" in note for note in result.notes)


def test_nonfinite_loss_reports_step_files_and_checkpoint(photo_run, tmp_path, monkeypatch):
    step = learner.Learner.step
    monkeypatch.setattr(
        learner.Learner,
        "step",
        lambda self, batch, number: float("nan") if number == 5 else step(self, batch, number),
    )
    with pytest.raises(NotFinite) as caught:
        train(photo_run, tmp_path / "run")
    sentence = str(caught.value)
    assert "step 6 of epoch 2" in sentence
    assert str(tmp_path / "run" / CHECKPOINT / "step-000000004") in sentence
    assert all(os.path.isfile(file) for file in caught.value.files)
    assert len(caught.value.files) == 4
    assert caught.value.files[0] in sentence
    listed = (tmp_path / "run" / "not_finite.txt").read_text().split()
    assert tuple(listed) == caught.value.files
    assert "\n" not in sentence


def test_nonfinite_weights_are_not_checkpointed(glyph_run, tmp_path, monkeypatch):
    step = learner.Learner.step

    def break_at_four(self, batch, number):
        loss = step(self, batch, number)
        if number == 5:
            self.proxies.data[0, 0] = float("nan")
        return loss

    monkeypatch.setattr(learner.Learner, "step", break_at_four)
    with pytest.raises(NotFinite, match=r"step 6 of epoch 2.*step-000000003"):
        train(glyph_run, tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / CHECKPOINT).steps() == [3]


def test_diverging_learning_rate_is_reported(glyph_run, tmp_path):
    run = replace(glyph_run, lr=1e30, optimizer="sgd", schedule="constant")
    with pytest.raises(NotFinite, match="not finite"):
        train(run, tmp_path / "run")


def test_nonfinite_embeddings_with_finite_weights_are_reported(photo_run, tmp_path):
    with pytest.raises(NotFinite, match=r"step \d+ of epoch \d") as caught:
        train(replace(photo_run, lr=1e5, batch_size=16), tmp_path / "run")
    assert isinstance(caught.value.__cause__, EmbeddingsNotFinite)


def test_nonfinite_embeddings_in_resumed_evaluation_are_reported(glyph_run, tmp_path, monkeypatch):
    """Resumed after the last step of an epoch, there is no batch left, only the evaluation."""
    measure = inference.measure

    def interrupted(*args, features=False, **options):
        if not features:  # after training
            raise Interrupted(signal.SIGTERM)
        return measure(*args, features=features, **options)

    def broken(*args, **options):
        raise EmbeddingsNotFinite("not finite")

    monkeypatch.setattr(inference, "measure", interrupted)
    with pytest.raises(Interrupted):
        train(glyph_run, tmp_path / "run")
    monkeypatch.setattr(inference, "measure", broken)
    with pytest.raises(NotFinite, match="step 3 of epoch 1") as caught:
        train(glyph_run, tmp_path / "run")
    assert len(caught.value.files) == 16
    assert read_metrics(tmp_path / "run") == []


def test_settings_can_change_before_the_first_checkpoint(glyph_run, tmp_path):
    with pytest.raises(Stopped):
        train(replace(glyph_run, lr=0.5), tmp_path / "run", progress=Stopper(1))
    with locked(tmp_path / "run"), pytest.raises(WrongFolder, match="another process"):
        train(glyph_run, tmp_path / "run")
    train(glyph_run, tmp_path / "run")
    assert read_run(tmp_path / "run").run == glyph_run


def fail_on(monkeypatch, name, code=errno.ENOSPC):
    """Writing a file whose name has `name` in it fails."""
    write = files.write_new

    def writing(path, data, **mode):
        if name in str(path):
            raise files.CannotWrite(code, os.strerror(code), str(path))
        write(path, data, **mode)

    monkeypatch.setattr(files, "write_new", writing)
    monkeypatch.setattr("proxysynth.training.checkpoint.write_new", writing)
    stream = tensor_files.write_stream

    def streaming(path, *tensors):
        if name in str(path):
            raise files.CannotWrite(code, os.strerror(code), str(path))
        return stream(path, *tensors)

    monkeypatch.setattr(tensor_files, "write_stream", streaming)


@pytest.mark.parametrize(
    "name", ["step-000000006", "model.safetensors", "embeddings.safetensors", "result.json"]
)
def test_run_resumes_after_full_disk(finished, glyph_run, tmp_path, monkeypatch, name):
    with monkeypatch.context() as patch:
        fail_on(patch, name)
        with pytest.raises(TrainingFailed, match="no space left on device") as caught:
            train(glyph_run, tmp_path / "run")
    assert "the last good checkpoint is" in str(caught.value)
    assert "free some space" in str(caught.value)
    assert "\n" not in str(caught.value)
    train(glyph_run, tmp_path / "run")
    assert_same_outcome(tmp_path / "run", finished)


def test_read_only_folder_is_reported(glyph_run, tmp_path, monkeypatch):
    fail_on(monkeypatch, "run.json", errno.EROFS)
    with pytest.raises(TrainingFailed, match="read-only file system"):
        train(glyph_run, tmp_path / "run")


def test_damaged_checkpoint_falls_back_to_previous(finished, glyph_run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            "proxysynth.training.run_folder.write_result",
            lambda *_: (_ for _ in ()).throw(Stopped()),
        )
        with pytest.raises(Stopped):
            train(glyph_run, tmp_path / "run")
    path = tmp_path / "run" / CHECKPOINT / "step-000000006" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    progress = Stopper()
    train(glyph_run, tmp_path / "run", progress=progress)
    assert any("damaged" in message for message in progress.messages)
    assert "Resuming after epoch 1, step 3." in progress.messages
    assert_same_outcome(tmp_path / "run", finished)


def test_finished_run_keeps_one_checkpoint(finished):
    assert Checkpoints(finished / CHECKPOINT).steps() == [6]


def test_invalid_settings_do_not_claim_the_folder(glyph_run, tmp_path):
    run = replace(glyph_run, sampler="m_per_class", m=2, batch_size=16)
    with pytest.raises(ValueError, match="up to 12"):
        train(run, tmp_path / "run")
    train(replace(run, batch_size=12, epochs=1), tmp_path / "run")


def test_checkpoint_of_different_run_is_rejected(finished, glyph_run, tmp_path):
    other = replace(glyph_run, seed=9)
    with pytest.raises(Stopped):
        train(other, tmp_path / "run", progress=Stopper(0))
    shutil.rmtree(tmp_path / "run" / CHECKPOINT, ignore_errors=True)
    shutil.copytree(finished / CHECKPOINT, tmp_path / "run" / CHECKPOINT)
    with pytest.raises(WrongFolder, match="another run"):
        train(other, tmp_path / "run")


def test_unfinished_files_are_deleted(glyph_run, tmp_path):
    with pytest.raises(Stopped):
        train(glyph_run, tmp_path / "run", progress=Stopper(4))
    (tmp_path / "run" / ".unfinished-result.json").write_text("{")
    (tmp_path / "run" / CHECKPOINT / ".unfinished-step-000000006").mkdir()
    train(glyph_run, tmp_path / "run")
    left = [path for path in (tmp_path / "run").rglob("*") if "unfinished" in path.name]
    assert left == []


def test_results_are_restored_from_last_checkpoint(finished, glyph_run, tmp_path):
    """Killed after the last checkpoint and before the result: only the end is done again."""
    shutil.copytree(finished, tmp_path / "run")
    for name in ("result.json", "model.safetensors", "embeddings.safetensors"):
        (tmp_path / "run" / name).unlink()
    train(glyph_run, tmp_path / "run", progress=Stopper(0))
    assert_same_outcome(tmp_path / "run", finished)


def test_dot_product_loss_keeps_embedding_norms(glyph_run, tmp_path):
    train(replace(glyph_run, loss=ps.Softmax(), epochs=1), tmp_path / "run")
    query = read_tensors(tmp_path / "run" / EMBEDDINGS)[0]["query"]
    assert query.norm(dim=1).std() > 1e-3


def test_metrics_use_ks_of_the_run(glyph_run, tmp_path):
    result = train(replace(glyph_run, ks=(1, 3), epochs=1), tmp_path / "run")
    assert {name for name in result.metrics if name.startswith("recall")} == {
        "recall@1",
        "recall@3",
    }


def test_run_json_records_split_and_fingerprint(finished):
    recorded = json.loads((finished / "run.json").read_text())
    assert len(recorded["data"]["fingerprint"]) == 12
    assert recorded["run"]["split"]["train_classes"] == 6


def test_missing_image_folder_is_reported(glyph_run, tmp_path):
    run = replace(glyph_run, data=str(tmp_path / "nowhere"), split=Split())
    with pytest.raises(ValueError, match="nowhere"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_on_16_bit_images(tmp_path):
    """Through the whole loop; the reader has its own tests."""
    root = pictures(tmp_path / "set", classes=4, each=3)
    deep = np.arange(40 * 32, dtype=np.uint16).reshape(32, 40) * 50
    Image.fromarray(deep).save(root / "class0" / "deep.png")
    run = Run(data=str(root), epochs=1, dim=8, width=0.25, batch_size=4, image_size=32)
    assert train(run, tmp_path / "run").data["train"]["pictures"] >= 6


def test_comparison_detects_different_runs(finished, glyph_run, tmp_path):
    """The comparison that these tests use does see a difference."""
    train(replace(glyph_run, seed=3), tmp_path / "run")
    one = read_tensors(finished / EMBEDDINGS)[0]
    other = read_tensors(tmp_path / "run" / EMBEDDINGS)[0]
    with pytest.raises(AssertionError):
        assert_same_tensors(one, other)


def test_ks_without_1_still_report_recall_at_1(glyph_run, tmp_path):
    run = replace(glyph_run, ks=(2, 4), report_epoch="best_on_test", best_by="recall@1")
    progress = Stopper()
    result = train(run, tmp_path / "run", progress=progress)
    lines = read_metrics(tmp_path / "run")
    assert {"recall@1", "recall@2", "recall@4"} <= result.metrics.keys()
    assert result.metrics["recall@1"] == max(line["recall@1"] for line in lines)
    assert any("Recall@1" in message for message in progress.messages)


@pytest.mark.parametrize("name", ["a file", "a file/run"])
def test_file_at_output_path_is_rejected(glyph_run, tmp_path, name):
    (tmp_path / "a file").write_text("something else")
    with pytest.raises(TrainingFailed, match="cannot write .*a file"):
        train(glyph_run, tmp_path / name)
    assert (tmp_path / "a file").read_text() == "something else"
