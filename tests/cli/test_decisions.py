"""search --same, predict, duplicates, cluster and eval of an index, as a script meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from cli.running import run
from proxysynth import Index
from proxysynth.cli import main
from proxysynth.training import Run, load, train
from training.tiny_pictures import pictures


def result(capsys, *argv) -> dict:
    code, out, err = run(capsys, *argv, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a run, photos/ and shop.index; tests may read it, not write."""
    base = tmp_path_factory.mktemp("shop")
    photos = pictures(base / "photos", classes=8)
    settings = {"epochs": 1, "dim": 8, "width": 0.25, "batch_size": 4, "image_size": 32}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYSYNTH_CACHE", str(base / "cache"))
        train(Run(data=str(photos), **settings), base / "run")
        with pytest.raises(SystemExit):
            main(["index", str(base / "run"), str(photos), "-o", str(base / "shop.index")])
    return base


def test_same_class_search_uses_the_run_threshold(shop, capsys):
    query, file = shop / "photos/class1/0.png", shop / "shop.index"
    least = load(shop / "run").calibration.threshold("f1")
    found = result(capsys, "search", file, query, "-k", 39)
    assert found["threshold"] == load(shop / "run").calibration.threshold()
    for hit in found["hits"]:
        assert hit["same"] == (hit["similarity"] >= found["threshold"])
    same = result(capsys, "search", file, query, "-k", 39, "--same", "--target", "f1")
    assert same["threshold"] == least
    assert [hit["number"] for hit in same["hits"]] == [
        hit["number"] for hit in found["hits"] if hit["similarity"] >= least
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--same", "--threshold", "0.5"),
        ("--same", "--target", "x"),
        ("--target", "f1"),
        ("--rerank", "nothing"),
        ("--rerank", "database:k=0"),
    ],
)
def test_invalid_search_options_are_rejected(shop, capsys, words):
    code, _, err = run(capsys, "search", shop / "shop.index", shop / "photos/class1/0.png", *words)
    assert code == 2
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("method", ["query_expansion", "database", "k_reciprocal:k1=5,k2=2"])
def test_search_with_reranking(shop, capsys, method):
    file, query = shop / "shop.index", shop / "photos/class1/0.png"
    found = result(capsys, "search", file, query, "--rerank", method)
    index = Index.open(file)
    vector = index.vectors(index.find(query), index.find(query) + 1)
    plain = {hit.number: hit.similarity for hit in index.search_vectors(vector, len(index))[0]}
    for hit in found["hits"]:
        assert hit["similarity"] == pytest.approx(plain[hit["number"]], abs=1e-9)
    assert index.find(query) not in [hit["number"] for hit in found["hits"]]


def test_predict_by_proxies_and_by_index(shop, tmp_path, capsys):
    (tmp_path / "bad.jpg").write_text("text")
    shutil.copy(shop / "photos/class2/1.png", tmp_path / "good.png")
    made = result(capsys, "predict", shop / "run", tmp_path, shop / "photos/class2/0.png")
    assert [one["path"].rsplit("/")[-1] for one in made["predictions"]] == ["good.png", "0.png"]
    assert made["unreadable"][0]["path"].endswith("bad.jpg")
    expected = load(shop / "run").predict([tmp_path / "good.png"])[0]
    assert made["predictions"][0]["nearest"] == expected.nearest
    assert made["predictions"][0]["label"] == expected.label
    by_index = result(
        capsys, "predict", shop / "run", tmp_path / "good.png", "--index", shop / "shop.index"
    )
    assert by_index["predictions"][0]["label"] == "class2"
    assert by_index["threshold"] == load(shop / "run").calibration.threshold()
    none = result(capsys, "predict", shop / "run", shop / "photos", "--threshold", "none")
    assert (none["unknown"], none["threshold"]) == (0, None)
    every = result(capsys, "predict", shop / "run", shop / "photos", "--threshold", "1")
    assert every["unknown"] == len(every["predictions"]) == 40
    code, out, _ = run(capsys, "predict", shop / "run", tmp_path / "good.png", "--threshold", 1)
    assert code == 0
    assert "1 of 1 image" in out
    assert "--all-classes" in out  # the run has held out some classes


@pytest.mark.parametrize("words", [("nowhere.jpg",), ("photos", "-k", "3"),
                                   ("photos", "--threshold", "far=7"),
                                   ("photos", "--threshold", "nan"),
                                   ("photos", "--threshold", "5"),
                                   ("photos", "--threshold", "5", "--index", "shop.index"),
                                   ])  # fmt: skip
def test_invalid_predict_options_are_rejected(shop, capsys, monkeypatch, words):
    monkeypatch.chdir(shop)
    code, out, err = run(capsys, "predict", "run", *words, "--json")
    assert (code, out) == (2, ""), err
    assert len(err.strip().splitlines()) == 1


def test_duplicates_are_grouped(shop, tmp_path, capsys):
    photos = pictures(tmp_path / "photos", classes=3)
    copy = Image.open(photos / "class1" / "2.png")
    copy.save(photos / "class0" / "copy.png")
    assert run(capsys, "index", shop / "run", photos, "-o", tmp_path / "x.index")[0] == 0
    sheet = tmp_path / "sheet.html"
    made = result(
        capsys, "duplicates", tmp_path / "x.index", "--threshold", "0.9999999", "-o", sheet
    )
    assert [[one["path"] for one in group] for group in made["groups"]] == [
        ["class0/copy.png", "class1/2.png"]
    ]
    assert made["duplicates"] == 1
    page = sheet.read_text()
    assert page.count("<img") == 2
    assert "group 1: 2 images" in page
    argv = ["duplicates", tmp_path / "x.index", "--threshold", "0.9999999", "-o", sheet]
    code, out, _ = run(capsys, *argv)
    assert code == 0
    assert "2 images of 16 in 1 group" in out
    assert "group 1: 2 images" in out
    assert f"Contact sheet: {sheet}" in out.replace("\n", "")
    assert run(capsys, "duplicates", tmp_path / "x.index", "--threshold", "7")[0] == 2


@pytest.mark.parametrize("words", [("-k", "4"), ("--method", "hdbscan", "--min-size", "3"), ()])
def test_every_image_is_in_one_cluster(shop, tmp_path, capsys, words):
    made = result(capsys, "cluster", shop / "shop.index", *words, "-o", tmp_path / "sheets")
    images = [one["number"] for cluster in made["clusters"] for one in cluster["images"]]
    assert sorted(images) == list(range(40))
    if words != ("--method", "hdbscan", "--min-size", "3"):
        assert [one["number"] for one in made["clusters"]] == list(range(1, 5 if words else 9))
    assert 0 <= made["nmi"] <= 1
    assert len(made["sheets"]) == 1 + len(made["clusters"])
    overview, *pages = map(Path, made["sheets"])
    for page in pages:
        assert f'<a href="{page.name}">' in overview.read_text()
        assert f'<a href="{overview.name}">' in page.read_text()
    for cluster, sheet in zip(made["clusters"], made["sheets"][1:], strict=True):
        similarities = [one["similarity"] for one in cluster["images"]]
        assert similarities == sorted(similarities, reverse=True)
        page = Path(sheet).read_text()
        assert page.count("<img") == len(cluster["images"])
        if cluster["number"] > 0:
            assert f"cluster {cluster['number']}: " in page
            assert Path(sheet).name == f"{cluster['number']:04d}.html"
    code, out, _ = run(capsys, "cluster", shop / "shop.index", *words)
    assert code == 0
    assert "cluster 0" not in out
    assert "no cluster:" not in out
    alone = [len(one["images"]) for one in made["clusters"] if one["number"] < 0]
    if "hdbscan" in words:
        outside = f"{sum(alone)} of 40 images in no cluster"
        assert f"{len(made['clusters']) - len(alone)} clusters; {outside}\n" in out
    assert ("count as one cluster" in out) == bool(alone)


def test_invalid_cluster_options_are_rejected(shop, capsys):
    for words in (("-k", "400"), ("--method", "hdbscan", "-k", "3"), ("--min-size", "x")):
        assert run(capsys, "cluster", shop / "shop.index", *words)[0] == 2


def test_eval_of_labeled_queries_against_an_index(shop, tmp_path, capsys):
    file = shop / "shop.index"
    others = pictures(tmp_path / "queries", classes=3, each=8)
    (others / "class2").rename(others / "new")
    made = result(capsys, "eval", file, others, "--ks", "1,5")
    assert made["metrics"]["queries"] == 16
    assert made["metrics"]["queries_without_positive"] == 8
    index = Index.open(file)
    right = 0
    for path in sorted(others.glob("class*/*.png")):
        right += index.search(path, 1)[0].label == path.parent.name
    assert made["metrics"]["recall@1"] == pytest.approx(right / 16)
    again = result(capsys, "eval", file, others, "--rerank", "query_expansion:k=3")
    assert set(again["metrics"]) >= {"recall@1", "map@r"}
    _, out, _ = run(capsys, "eval", file, others, "--rerank", "query_expansion:k=3")
    assert "re-ranked by query_expansion:k=3" in out
    # The pictures of the index itself: as if they were searched among themselves.
    within = result(capsys, "eval", file, shop / "photos")
    alone = result(capsys, "eval", shop / "run", shop / "photos")
    assert within["metrics"]["map@r"] == pytest.approx(alone["metrics"]["map@r"], abs=1e-6)
    assert "itself" in within["warnings"][0]
    assert "classes seen in training" in within["warnings"][1]


def test_invalid_index_evaluations_are_rejected(shop, tmp_path, capsys):
    assert run(capsys, "eval", shop / "shop.index")[0] == 2
    assert run(capsys, "eval", shop / "shop.index", shop / "photos", "--nmi")[0] == 2
    bad = pictures(tmp_path / "queries", classes=2)
    (bad / "class0" / "bad.jpg").write_text("text")
    assert run(capsys, "eval", shop / "shop.index", bad)[0] == 1  # as of other data
    assert run(capsys, "eval", shop / "shop.index", bad, "--skip-bad")[0] == 0


def test_eval_of_a_run_with_reranking(shop, capsys):
    plain = result(capsys, "eval", shop / "run")
    same = result(capsys, "eval", shop / "run", "--rerank", "k_reciprocal:weight=1")
    assert same["metrics"] == pytest.approx(plain["metrics"])
