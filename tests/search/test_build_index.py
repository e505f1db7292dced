import errno
import json
import os
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import proxysynth as ps
from proxysynth.errors import TrainingFailed
from proxysynth.search import Index, build as module, index_file
from proxysynth.search.build import journal_path, update_index
from proxysynth.search.groups import evaluate_queries
from proxysynth.search.model import ImageEmbedder


class Interrupted(ImageEmbedder):
    """The model, interrupted after some batches."""

    def __init__(self, model, batches):
        super().__init__(model.model, model.identity)
        self.batches = batches

    def embed(self, pictures, workers=None):
        if not self.batches:
            raise KeyboardInterrupt
        self.batches -= 1
        return super().embed(pictures, workers)


@pytest.fixture
def opened(monkeypatch):
    """The names of the images that have been opened."""
    names, really_open = [], module.open_image

    def open_image(path, **options):
        names.append(path.name)
        return really_open(path, **options)

    monkeypatch.setattr(module, "open_image", open_image)
    return names


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "JOURNAL_SECONDS", 0)


def left_over(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_update_embeds_only_changed_files(model, photos, tmp_path, opened):
    out = tmp_path / "a.index"
    first = update_index(model, photos, out)
    assert (first.items, first.embedded, first.kept, first.written) == (12, 12, 0, True)
    before = {path: out_row(out, path) for path in Index.open(out).paths}
    Image.new("RGB", (40, 40), "red").save(photos / "class1" / "new.png")
    Image.new("RGB", (40, 40), "blue").save(photos / "class2" / "0.png")  # changed
    (photos / "class3" / "1.png").unlink()
    opened.clear()
    second = update_index(model, photos, out)
    assert sorted(opened) == ["0.png", "new.png"]
    assert (second.items, second.embedded, second.kept, second.removed) == (12, 2, 10, 1)
    assert "2 embedded, 10 kept, 1 removed" in second.summary
    index = Index.open(out)
    for path in index.paths:
        row = out_row(out, path)
        torch.testing.assert_close(row, model.embed(photos / path)[0], rtol=0, atol=1e-6)
        if path not in ("class1/new.png", "class2/0.png"):
            assert torch.equal(row, before[path])
    assert index.find("class3/1.png") is None
    assert left_over(tmp_path) == []


def out_row(file, path):
    index = Index.open(file)
    number = index.find(path)
    return index.vectors(number, number + 1)[0].clone()


def test_what_is_no_model_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"'runs/a'.*ps\.load"):
        ps.build_index("runs/a", tmp_path, tmp_path / "x.index")
    with pytest.raises(ValueError, match=r"'runs/a'.*ps\.load"):
        ps.export("runs/a", "onnx", tmp_path / "x.onnx")


def test_labels_are_below_train_and_test(model, photos, tmp_path):
    for part, name in (("train", "class0"), ("test", "class1")):
        shutil.copytree(photos / name, tmp_path / "data" / part / name)
    index = ps.build_index(model, tmp_path / "data", tmp_path / "x.index")
    assert set(index.label_names) == {"class0", "class1"}
    classes = ps.build_index(model, tmp_path / "data" / "test", tmp_path / "y.index")
    assert set(classes.label_names) == {"class1"}
    with pytest.raises(ValueError, match="class0"):
        evaluate_queries(classes, tmp_path / "data" / "train")


def test_unchanged_folder_writes_nothing(model, photos, tmp_path, opened):
    out = tmp_path / "a.index"
    update_index(model, photos, out)
    stamp = out.stat()
    opened.clear()
    again = update_index(model, photos, out)
    assert not again.written
    assert opened == []
    assert out.stat().st_mtime_ns == stamp.st_mtime_ns
    assert "nothing has changed" in again.summary


def test_removed_file_leaves_the_index(model, photos, tmp_path):
    out = tmp_path / "a.index"
    update_index(model, photos, out)
    (photos / "loose.png").unlink()
    built = update_index(model, photos, out)
    assert (built.items, built.embedded, built.removed, built.written) == (11, 0, 1, True)


def test_unreadable_files_are_reported_and_retried(model, photos, tmp_path):
    (photos / "class0" / "empty.jpg").touch()
    (photos / "class0" / "page.jpg").write_text("<html>")
    (photos / "class0" / "broken.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(photos / "class0" / "pipe.jpg")  # not a file: passed over
    (photos / "notes.txt").write_text("no picture by its name")
    (photos / ".hidden.png").write_text("nor this")
    out = tmp_path / "a.index"
    built = update_index(model, photos, out)
    reasons = dict(built.unreadable)
    names = ("empty.jpg", "page.jpg", "broken.jpg")
    assert set(reasons) == {f"class0/{name}" for name in names}
    assert "empty" in reasons["class0/empty.jpg"]
    assert "HTML" in reasons["class0/page.jpg"]
    assert "no such file" in reasons["class0/broken.jpg"]
    assert built.items == 12
    Image.new("RGB", (32, 32)).save(photos / "class0" / "page.jpg")
    again = update_index(model, photos, out)
    assert (again.embedded, len(again.unreadable)) == (1, 2)


def test_self_referencing_symlink_is_ignored(model, photos, tmp_path):
    (photos / "class0" / "round").symlink_to("round")
    assert update_index(model, photos, tmp_path / "a.index").items == 12


def test_no_files_are_written_if_every_image_is_unreadable(model, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "empty.jpg").touch()
    with pytest.raises(ValueError, match="none of 1 images"):
        update_index(model, tmp_path / "photos", tmp_path / "a.index")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_image_with_nan_embedding_is_skipped(model, photos, tmp_path):
    class Broken(ImageEmbedder):
        def embed(self, pictures, workers=None):
            made = super().embed(pictures, workers)
            made[3] = torch.nan
            return made

    built = update_index(Broken(model.model, model.identity), photos, tmp_path / "a.index")
    assert built.items == 11
    assert built.unreadable[0].reason == "its embedding is not finite"


def test_interrupted_build_is_resumed(model, photos, tmp_path, small_batches, opened):
    out = tmp_path / "a.index"
    with pytest.raises(KeyboardInterrupt):
        update_index(Interrupted(model, batches=3), photos, out)
    assert not out.exists()
    opened.clear()
    built = update_index(model, photos, out)
    assert (built.resumed, built.embedded, built.items) == (6, 6, 12)
    assert len(opened) == 6
    whole = tmp_path / "whole.index"
    update_index(model, photos, whole)
    torch.testing.assert_close(
        Index.open(out).vectors(), Index.open(whole).vectors(), rtol=0, atol=1e-6
    )
    assert left_over(tmp_path) == []


def test_damaged_journal_is_discarded(model, photos, tmp_path, small_batches):
    out = tmp_path / "a.index"
    with pytest.raises(KeyboardInterrupt):
        update_index(Interrupted(model, batches=4), photos, out)
    journal_path(out).write_bytes(os.urandom(5000))
    built = update_index(model, photos, out)
    assert (built.resumed, built.embedded) == (0, 12)
    assert left_over(tmp_path) == []


def test_journal_of_another_model_is_discarded(model, photos, tmp_path, small_batches):
    out = tmp_path / "a.index"
    with pytest.raises(KeyboardInterrupt):
        update_index(Interrupted(model, batches=3), photos, out)
    other = ImageEmbedder(model.model, replace(model.identity, weights="f" * 16))
    built = update_index(other, photos, out)
    assert (built.resumed, built.embedded) == (0, 12)


def test_another_model_or_folder_requires_rebuild(model, photos, tmp_path):
    out = tmp_path / "a.index"
    update_index(model, photos, out)
    other = ImageEmbedder(model.model, replace(model.identity, weights="f" * 16))
    with pytest.raises(ValueError, match=r"was made by .*--rebuild"):
        update_index(other, photos, out)
    with pytest.raises(ValueError, match="photos: .*--rebuild"):
        update_index(model, photos / "class1", out)
    assert len(Index.open(out)) == 12
    built = update_index(other, photos, out, rebuild=True)
    assert built.embedded == 12
    assert Index.open(out).model.weights == "f" * 16


def test_file_that_is_not_an_index_is_not_overwritten(model, photos, tmp_path):
    (tmp_path / "letter.txt").write_text("dear aunt")
    with pytest.raises(ValueError, match="not an index"):
        update_index(model, photos, tmp_path / "letter.txt")
    assert (tmp_path / "letter.txt").read_text() == "dear aunt"


@pytest.mark.parametrize("moment", ["journal", "index", "rename"])
def test_full_disk_keeps_the_old_index(model, photos, tmp_path, monkeypatch, moment):
    out = tmp_path / "a.index"
    update_index(model, photos, out)
    data = out.read_bytes()
    Image.new("RGB", (40, 40), "red").save(photos / "new.png")
    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(module, "JOURNAL_SECONDS", 0)
    place_of = {"journal": ".unfinished-a.index.journal", "index": ".unfinished-a.index"}

    def fsync(handle):
        place = os.readlink(f"/proc/self/fd/{handle}")
        if place.endswith(place_of.get(moment, "no file")):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_fsync(handle)

    def replace(source, target):
        if moment == "rename" and str(target) == str(out):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", replace)
        with pytest.raises(TrainingFailed, match="no space left .*unchanged"):
            update_index(model, photos, out)
    assert out.read_bytes() == data
    assert not (tmp_path / ".unfinished-a.index").exists()
    assert update_index(model, photos, out).items == 13


@pytest.mark.parametrize("part", ["embeddings", "label_text", "path_text", "stamps"])
def test_damaged_index_is_repaired(model, photos, tmp_path, monkeypatch, opened, part):
    monkeypatch.setattr(index_file, "ROWS_PER_SUM", 4)
    out = tmp_path / "a.index"
    update_index(model, photos, out)
    whole = Index.open(out)
    vectors, paths, labels = whole.vectors().clone(), list(whole.paths), whole.labels[:]
    data = bytearray(out.read_bytes())
    length = int.from_bytes(data[:8], "little")
    start, stop = json.loads(data[8 : 8 + length])[part]["data_offsets"]
    data[8 + length + (start + stop) // 2] ^= 4
    out.write_bytes(data)
    opened.clear()
    built = update_index(model, photos, out, verify=True)
    again = {"embeddings": 4, "label_text": 0}.get(part, 12)  # labels follow from the paths
    assert (built.written, built.embedded) == (True, again)
    assert len(opened) == again
    assert part in built.damage
    assert "it was damaged and is repaired" in built.summary
    index = Index.open(out, verify=True)
    torch.testing.assert_close(index.vectors(), vectors, rtol=0, atol=1e-6)
    assert (list(index.paths), index.labels[:]) == (paths, labels)
    assert not update_index(model, photos, out, verify=True).written


def test_missing_and_empty_folders_are_rejected(model, tmp_path):
    out = tmp_path / "a.index"
    with pytest.raises(ValueError, match="does not exist"):
        update_index(model, tmp_path / "gone", out)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        update_index(model, tmp_path / "file", out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="expected images"):
        update_index(model, tmp_path / "empty", out)
    (tmp_path / "empty" / "bad.jpg").write_text("text")
    with pytest.raises(ValueError, match=r"none of 1 .*bad\.jpg"):
        update_index(model, tmp_path / "empty", out)
    assert not out.exists()


def test_symlinks_nested_folders_and_unusual_names(model, tmp_path):
    root = tmp_path / "photos"
    deep = root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "back").symlink_to(root)
    for name in ("x.PNG", "[bold]é\n.png", "日本.png", os.fsdecode(b"caf\xe9.png")):
        Image.new("RGB", (8, 8)).save(deep / name, format="PNG")
    out = tmp_path / "a.index"
    assert update_index(model, root, out).items == 4
    index = Index.open(out)
    assert set(index.labels[:]) == {"a"}
    for number in range(4):
        assert index.path(number).is_file()
        assert index.find(index.path(number)) == number
    assert not update_index(model, root, out).written


def test_concurrent_update_is_rejected(model, photos, tmp_path):
    entered, go_on = threading.Event(), threading.Event()

    class Waiting(ImageEmbedder):
        def embed(self, pictures, workers=None):
            entered.set()
            assert go_on.wait(30)
            return super().embed(pictures, workers)

    out, waiting = tmp_path / "a.index", Waiting(model.model, model.identity)
    first = threading.Thread(target=update_index, args=(waiting, photos, out))
    first.start()
    assert entered.wait(30)
    with pytest.raises(ValueError, match="another process is writing"):
        update_index(model, photos, out)
    go_on.set()
    first.join(30)
    assert len(Index.open(out)) == 12
    assert np.isfinite(Index.open(out).vectors().numpy()).all()


def test_images_without_subfolders_have_no_labels(model, photos, tmp_path):
    built = update_index(model, photos / "class1", tmp_path / "flat.index")
    index = Index.open(built.file)
    assert index.labels[:] == [None] * 3
    assert list(index.label_names) == []
    assert len(index.search("0.png", k=9)) == 2
