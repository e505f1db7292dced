"""The page of a run: every section, nothing from outside, borders that tell the truth."""

import json
import re
import shutil

import pytest

import proxysynth as ps
from proxysynth.errors import TrainingFailed
from proxysynth.report import read_finished, write_report
from proxysynth.report.pages import render, write_page
from proxysynth.report.run_report import report_page
from proxysynth.retrieval.calibration import count_pairs
from proxysynth.tensor_files import read_tensors, write_tensors
from proxysynth.training.run import Split
from proxysynth.training.run_folder import read_result
from report.made_up_runs import Page, make_pictures, make_run, unseen

SECTIONS = [
    "Before and after training",
    "Training",
    "Queries and what they retrieve",
    "Similarity of pairs",
    "Settings",
    "Search with this model",
    "Reproduce",
    "Provenance",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory, pictures):
    return make_run(tmp_path_factory.mktemp("runs") / "birds <1>", pictures, lr=0.5)


@pytest.fixture(scope="module")
def report(run):
    path = write_report(run)
    assert path == run / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def titles(page_text):
    return [re.sub("<.*?>", "", t) for t in re.findall(r"<h2>(.*?)</h2>", page_text)]


def test_report_is_self_contained(report):
    report.assert_self_contained()
    report.assert_ids_are_unique()


def test_names_are_escaped(report, run):
    assert "birds <1>" in report.text
    assert unseen()[0] in report.text
    assert all(given.get("src", "data:").startswith("data:") for _, given in report.tags)
    raw = (run / "report.html").read_text()
    assert '<img src="http' not in raw
    assert "R&amp;D" in raw


def test_section_order(report, run):
    assert titles((run / "report.html").read_text()) == SECTIONS


def test_report_starts_with_the_result_and_its_protocol(report, run):
    metrics = read_finished(run).metrics
    text = report.text
    head = text[: text.index("Before and after")]
    assert f"Recall@1 {100 * metrics['recall@1']:.1f} %" in head
    assert f"MAP@R {100 * metrics['map@r']:.1f} %" in head
    assert "12 images of 3 classes, none of them seen in training" in head
    assert "8 images of 2 other classes of “pets & <birds>”" in head
    assert "epoch 3, the last epoch" in head
    assert "NormSoftmax with ProxySynthesis" in head


def test_borders_match_labels(report):
    assert len(report.rows) > 2
    firsts = []
    for query, neighbours in report.rows:
        assert len(neighbours) == 8
        assert all((kind == "right") == (label == query) for kind, label in neighbours)
        firsts.append(neighbours[0][0])
    half = firsts.index("wrong")
    assert firsts == ["right"] * half + ["wrong"] * (len(firsts) - half)
    marks = report.text.count("✓"), report.text.count("✗")
    kinds = [kind for _, neighbours in report.rows for kind, _ in neighbours]
    assert marks == (kinds.count("right") + 1, kinds.count("wrong") + 1)  # one in the explanation


def test_images_are_embedded_in_the_report(report):
    shots = [g for name, g in report.tags if name == "div" and g.get("class") == "face"]
    images = [given for name, given in report.tags if name == "img"]
    assert len(images) == len(shots) == 9 * len(report.rows)
    assert all(given["src"].startswith("data:image/jpeg;base64,") for given in images)


def test_thumbnails_carry_the_name_of_their_file(report):
    images = [given for name, given in report.tags if name == "img"]
    assert all(given["title"].endswith((".png", ".jpg")) for given in images)


def test_report_shows_settings_command_and_provenance(report, run):
    text = report.text
    settings = text[text.index("Different from the defaults") : text.index("at their defaults")]
    assert "lr 0.5" in settings
    assert "batch_size" not in settings
    assert f"proxysynth train --config '{run}/run.json' --out '{run}-again'" in text
    for fact in ("abc123", "2.13.0", "a machine", "1 min 15 s", "cpu (1 thread)"):
        assert fact in text[text.index("Provenance") :]
    assert read_finished(run).data["fingerprint"] in text


def test_report_shows_the_number_of_pairs(report):
    # 3 classes of 4: 3 x 6 pairs of one class, 66 - 18 of two
    assert "All 18 pairs of the same class and 48 of different classes" in report.text


def test_pairs_of_many_images_are_sampled(run, monkeypatch):
    monkeypatch.setattr("proxysynth.report.run_report.SAMPLE", 8)
    text = report_page(read_finished(run))
    same, different = re.search(
        r"A sample of (\d+) pairs of the same class and (\d+)", text
    ).groups()
    assert int(same) + int(different) == 8 * 7 // 2


def test_report_is_deterministic(run):
    assert write_report(run).read_bytes() == write_report(run).read_bytes()
    assert not [p.name for p in run.iterdir() if "unfinished" in p.name]


def test_result_worse_than_untrained_is_highlighted(tmp_path, pictures):
    better = {"recall@1": 0.99, "r_precision": 0.99, "map@r": 0.99}
    page = Page(write_report(make_run(tmp_path / "r", pictures, untrained=better)).read_text())
    assert "Recall@1 from 99.0 to" in page.text
    assert ("p", {"class": "note bad"}) in page.tags


def test_report_repeats_the_verdict_of_the_result(run):
    page = Page((write_report(run)).read_text())
    assert read_result(run).verdict.replace("`", "") in page.text


def test_classification_report_shows_accuracy_first(tmp_path, pictures):
    folder = make_run(tmp_path / "r", pictures, metrics={"accuracy": 0.8125})
    text = write_report(folder).read_text()
    page = Page(text)
    assert page.text.index("Accuracy 81.2") < page.text.index("Recall@1")
    assert "Accuracy is the share of 12 images" in page.text
    drawn = text[text.index("Metrics over epochs") :]
    assert "Accuracy" in drawn[: drawn.index("</svg>")]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("last", "the last epoch"),
        ("best", "the best epoch by MAP@R on classes held out of the seen ones"),
        ("best_on_test", "the best epoch by MAP@R on the test classes themselves"),
    ],
)
def test_report_says_how_the_epoch_was_chosen(tmp_path, pictures, rule, words):
    folder = make_run(tmp_path / "r", pictures, report_epoch=rule, epoch=2)
    text = Page(write_report(folder).read_text()).text
    assert f"epoch 2, {words}" in text


def test_report_on_moved_data_has_no_images(tmp_path):
    root = make_pictures(tmp_path / "data")
    folder = make_run(tmp_path / "r", root)
    shutil.move(root, tmp_path / "elsewhere")
    page = Page(write_report(folder).read_text())
    assert not any(name == "img" for name, _ in page.tags)
    assert "The images cannot be shown: there is no folder" in page.text
    for query, neighbours in page.rows:
        assert all((kind == "right") == (label == query) for kind, label in neighbours)


def test_missing_images_are_skipped(tmp_path):
    root = make_pictures(tmp_path / "data")
    folder = make_run(tmp_path / "r", root)
    (root / "owl" / "0.png").unlink()
    (root / "owl" / "1.png").write_bytes(b"no picture")
    page = Page(write_report(folder).read_text())
    images = [name for name, _ in page.tags if name == "img"]
    assert 0 < len(images) < 9 * len(page.rows)


def test_separate_query_and_gallery(tmp_path):
    root = tmp_path / "data"
    make_pictures(root / "train", ("cat", "dog"))
    make_pictures(root / "query", ("owl", "fox"), each=3)
    make_pictures(root / "gallery", ("fox", "owl", "cat"), each=4)
    folder = make_run(tmp_path / "r", root, range(0, 60, 10), split=Split())
    page = Page(write_report(folder).read_text())
    assert "Each of 6 queries searches a gallery of 12 images" in page.text
    assert "1 of them also used for training" in page.text
    assert "All 24 pairs of the same class and 48 of different classes" in page.text
    for query, neighbours in page.rows:
        assert all((kind == "right") == (label == query) for kind, label in neighbours)


def test_report_without_wrong_neighbors_says_so(tmp_path, pictures):
    folder = make_run(
        tmp_path / "r", pictures, [0, 1, 2, 3, 120, 121, 122, 123, 240, 241, 242, 243]
    )
    assert "No query has a wrong nearest neighbor." in Page(write_report(folder).read_text()).text


def test_one_evaluation_and_validation_curves(tmp_path, pictures):
    one = [{"epoch": 3, "step": 3, "loss": 1.0, "recall@1": 0.5, "map@r": 0.4,
            "validation": {"recall@1": 0.6, "map@r": 0.45}}]  # fmt: skip
    folder = make_run(tmp_path / "r", pictures, history=one, report_epoch="best")
    page = Page(write_report(folder).read_text())
    assert "MAP@R held out" in page.text
    page.assert_ids_are_unique()


@pytest.mark.parametrize(("a", "title"), [(0.75, "Interpolation"), (1.0, "Embedding layer")])
def test_report_describes_the_embedding_layer_interpolation(tmp_path, pictures, a, title):
    folder = make_run(tmp_path / "r", pictures, dim=8, interpolate=a)
    result = json.loads((folder / "result.json").read_text())
    at = {"metrics": {"recall@1": 0.5, "map@r": 0.4}, "validation": {}}
    points = [{"a": point, **at} for point in ((1.0,) if a == 1 else (0.0, 0.5, a, 1.0))]
    del result["crc32"]
    result["interpolation"] = {"a": a, "by": None, "points": points, "trained": at}
    (folder / "result.json").write_text(json.dumps(result))
    page = Page(write_report(folder).read_text())
    assert title in page.text
    assert "is omitted" in page.text
    assert ("Recall@1 50.0, MAP@R 40.0." in page.text) == (a == 1)


@pytest.mark.parametrize("fitted_on", ["test", "held_out"])
def test_estimated_rates_are_shown_beside_measured_rates(tmp_path, pictures, fitted_on):
    folder = make_run(tmp_path / "r", pictures)
    result = json.loads((folder / "result.json").read_text())
    del result["crc32"]
    result["calibration"] = {
        "thresholds": {"f1": 0.5}, "fitted_on": fitted_on, "eer": 0.1, "auc": 0.9,
        "rates": {"f1": {"tar": 0.6, "far": 0.1, "precision": 0.7, "f1": 0.65}},
        "curve": [[0.1, 0.4], [1.0, 1.0]], "same": 18, "different": 48,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))
    text = Page(write_report(folder).read_text()).text
    if fitted_on == "held_out":  # the rates are those of all pairs already
        assert "best F1 0.500 60.0 10.00 70.0 65.0" in text
    else:
        pairs = count_pairs(read_finished(folder).embedded()).rates(0.5)
        assert "all pairs of these classes new classes, estimated" in text
        both = f"{100 * pairs['tar']:.1f} {100 * pairs['far']:.2f} 60.0 10.00 70.0 65.0"
        assert f"best F1 0.500 {both}" in text


def test_loss_without_a_command_shows_python_code(tmp_path, pictures):
    folder = make_run(tmp_path / "r", pictures, loss=ps.SquaredProxyNCA())
    text = Page(write_report(folder).read_text()).text
    assert "from proxysynth.training import read_run, train" in text


def test_folder_without_a_run_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="not the folder of a run") as e:
        write_report(tmp_path)
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="does not exist"):
        write_report(tmp_path / "nowhere")


def test_unfinished_run_is_rejected(tmp_path, pictures):
    history = [{"epoch": 1, "step": 3, "loss": 1.0, "recall@1": 0.5}]
    folder = make_run(tmp_path / "r", pictures, history=history, finished=False)
    with pytest.raises(ValueError, match="epoch 1 of 3") as e:
        write_report(folder)
    assert "\n" not in str(e.value)
    assert not (folder / "report.html").exists()


def test_undecodable_names_are_replaced(tmp_path, pictures):
    path = write_page(tmp_path / "page.html", render("base.html") + "caf\udce9")
    assert "caf?" in path.read_text(encoding="utf-8")


def test_unwritable_path_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingFailed, match="cannot write .*: not a directory") as error:
        write_page(tmp_path / "file" / "page.html", "x")
    assert "\n" not in str(error.value)


def test_damaged_embeddings_are_rejected(tmp_path, pictures):
    folder = make_run(tmp_path / "r", pictures)
    (folder / "embeddings.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="embeddings.safetensors is damaged") as error:
        write_report(folder)
    assert "\n" not in str(error.value)


def test_gallery_names_of_wrong_type_are_rejected(tmp_path, pictures):
    folder = make_run(tmp_path / "r", pictures)
    path = folder / "embeddings.safetensors"
    tensors, about = read_tensors(path)
    write_tensors(path, tensors, about | {"gallery": 5})
    told = json.loads((folder / "result.json").read_text())
    del told["crc32"]
    told["checksums"] = {}
    (folder / "result.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match="lack 'gallery'"):
        write_report(folder)


def test_result_with_missing_field_is_rejected(tmp_path, pictures):
    folder = make_run(tmp_path / "r", pictures)
    told = json.loads((folder / "result.json").read_text())
    del told["data"]["test_fingerprint"], told["crc32"]
    (folder / "result.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match="lack 'test_fingerprint'"):
        write_report(folder)
