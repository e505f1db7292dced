"""`proxysynth paper` as a person gives it."""

from __future__ import annotations

import errno
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from paper.conftest import SMOKED, TABLES
from proxysynth.cli.paper import run_paper
from proxysynth.cli.parser import UsageError, parser
from proxysynth.errors import TrainingFailed
from proxysynth.files import CannotWrite
from proxysynth.losses import Softmax
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store, requests

ALL = [*TABLES, *(f"figure{name}" for name in "12345ABCD")]


def _args(*words: str) -> Any:
    return parser().parse_args(["paper", *words])


def test_list_shows_all_27_artifacts(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(TITLES) == ALL
    assert len(ALL) == 27
    result = run_paper(_args("--list"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ALL
    assert list(result["artifacts"]) == ALL
    run_paper(_args("--list", "--json"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give `all`"),
        (("tabel6",), "did you mean 'table6'"),
        (("table1", "--data", "cub200"), "NAME:ROOT"),
        (("table1", "--data", "cub200:/no/such/folder"), "no folder"),
        (("table1", "--data", "cub20:/no/such/folder"), "did you mean 'cub200'"),
        (("table1", "--seeds", "0"), "--seeds"),
    ],
)
def test_invalid_arguments_are_usage_errors(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        run_paper(_args(*words, "--plan"))


@pytest.mark.usefixtures("estimated")
def test_plan_ends_with_remaining_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def last(*words: str) -> str:
        run_paper(_args(*words, "--plan", "--out", str(tmp_path / "out")))
        return capsys.readouterr().out.splitlines()[-1]

    assert last("figure1") == "1 artifact at scale small: nothing to train."
    assert last("table6", "--scale", "paper", "--data", f"sop:{tmp_path}").count(
        "No data for cub200, cars196 and inshop: give --data NAME:ROOT"
    )
    assert last("table1", "table2").startswith("2 artifacts at scale small: 42 runs missing")
    assert "(searched)" in last("table6")
    assert "12 studies missing" in last("tableG")
    assert " runs and 36 studies missing" in last("all")


@pytest.mark.usefixtures("estimated")
def test_plan_has_one_line_per_artifact_or_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lines(*words: str) -> list[str]:
        run_paper(_args("table1", "tableG", "--plan", "--out", str(tmp_path / "out"), *words))
        return capsys.readouterr().out.splitlines()[:-1]

    _, first, second = lines()
    assert first.split()[:3] == ["table1", "15", "0"]
    assert second.split()[:3] == ["tableG", "12", "0"]
    listed = lines("--runs")
    assert len(listed) == 15 + 12
    assert listed[0].endswith("NormSoftmax on distorted glyphs 2, 3 epochs, seed 0")
    assert listed[-1].endswith("8 epochs, seed 0")


def test_unknown_benchmark_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="birds"):
        run_paper(_args("table1", "--plan", "--data", f"birds:{tmp_path}"))


def test_file_as_output_folder_is_a_usage_error(tmp_path: Path) -> None:
    place = tmp_path / "notes.txt"
    place.write_text("mine")
    with pytest.raises(UsageError, match="--out"):
        run_paper(_args("table1", "--scale", "smoke", "--plan", "--out", str(place)))
    assert place.read_text() == "mine"


def test_uncreatable_output_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file" / "out", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="--out"):
            run_paper(_args("figure1", "--scale", "smoke", "--out", str(place)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_unwritable_output_folder_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UsageError, match="permission denied"):
        run_paper(_args("figure1", "--scale", "smoke", "--out", str(tmp_path)))


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise CannotWrite(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("proxysynth.paper.book.write_bytes", full)
    with pytest.raises(TrainingFailed, match="no space left"):
        run_paper(_args("figure1", "--scale", "smoke", "--out", str(tmp_path)))


@pytest.mark.usefixtures("estimated")
def test_seeds_and_folders_reach_the_runs(tmp_path: Path) -> None:
    args = _args("table6", "--plan", "--json", "--scale", "paper", "--seeds", "2", "--out",
                 str(tmp_path / "out"), "--data", f"cars196:{tmp_path}")  # fmt: skip
    result = run_paper(args)
    # Eight losses, two seeds, and the 30 settings of each one's search, on the one set given.
    assert result["missing"] == 8 * 2 + 8 * 30
    assert result["after_search"] == 8 * 2
    assert {run["what"].split(" on ")[1].split(",")[0] for run in result["runs"]} == {"cars196"}


@pytest.mark.usefixtures("estimated")
def test_settings_reach_all_runs_and_notes(tmp_path: Path) -> None:
    words = ("--scale", "smoke", "--set", "epochs=2", "--set", "precision=auto")
    plain, other = (
        run_paper(
            _args("table1", "table6", "tableD", "--plan", "--json", "--scale", "smoke", *more)
        )
        for more in ((), words[2:])
    )
    identities = [{run["identity"] for run in result["runs"]} for result in (plain, other)]
    assert len(identities[0]) == len(identities[1])
    assert not identities[0] & identities[1]
    scale = SCALES["smoke"].with_settings(["epochs=2", "precision=auto"])
    run = scale.run("cars196", "norm_softmax")
    assert (run.epochs, run.precision) == (2, "auto")
    for name, artifact in load_artifacts().items():
        asked = requests([artifact], scale)
        if asked.runs or asked.studies:
            made = artifact(scale, Store(tmp_path / "none", read_only=True))
            assert any("epochs 2" in note for note in made.notes), name


@pytest.mark.parametrize(
    "path", ["loss", "loss.scale", "seed", "data", "split.train_classes", "lrr"]
)
def test_settings_fixed_by_artifacts_are_rejected(path: str) -> None:
    with pytest.raises(UsageError, match=path.partition(".")[0]):
        run_paper(_args("table1", "--plan", "--set", f"{path}=1"))


def test_weights_reach_only_pretrained_networks(tmp_path: Path) -> None:
    roots = {"cars196": str(tmp_path), "cifar10": str(tmp_path)}
    scale = SCALES["paper"].with_roots(roots).with_settings(["weights=w.pth"])
    run, classifier = scale.run("cars196", "arcface"), scale.run("cifar10", Softmax())
    assert run.weights == str(Path("w.pth").absolute())
    assert classifier.weights is None
    study = requests(load_artifacts(["tableI"]).values(), scale).studies["cars196-arcface-none"]
    assert study.base.weights == run.weights
    for name in ("smoke", "small"):
        with pytest.raises(ValueError, match="weights"):
            SCALES[name].with_settings(["weights=w.pth"])


def test_studies_of_a_table_are_run_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proxysynth.paper.tables.mlrc.LOSSES", ("norm_softmax",))
    words = ("tableG", "--scale", "smoke", "--out", str(tmp_path / "out"), "--threads", "1")

    def results() -> dict[str, int]:
        found = (tmp_path / "out").glob("mlrc/*/result.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in found}

    table = run_paper(_args(*words))["artifacts"]["tableG"]
    assert (table["cells"], table["measured"]) == (12, 12)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Study ")]
    assert [line.split(",")[0] for line in said] == ["Study 1 of 2", "Study 2 of 2"]
    assert all("on distorted glyphs 1" in line for line in said)
    made = results()
    assert set(made) == {"cub200-norm_softmax-none", "cub200-norm_softmax-proxy_synthesis"}
    plan = run_paper(_args(*words, "--plan", "--json"))
    assert (plan["finished"], plan["studies"]) == (2, {})
    run_paper(_args(*words))
    assert results() == made


def test_json_is_the_only_standard_output(smoke: dict[str, Any]) -> None:
    assert len(smoke["stdout"].splitlines()) == 1
    result = smoke["result"]
    assert list(result["artifacts"]) == SMOKED
    assert result["failed"] == {}
    for name, one in result["artifacts"].items():
        endings = {Path(file).suffix for file in one["files"]}
        sheet = {".png"} if name == "table3" else set()  # the deformed pictures
        assert endings == {".md", ".csv", ".tex"} | sheet, name
        assert all(Path(file).stat().st_size > 200 for file in one["files"])
    assert (
        result["artifacts"]["table1"] | {"cells": 10, "measured": 10}
        == result["artifacts"]["table1"]
    )
    assert len(result["claims"]) > 35
    found = {claim["here"] for claim in result["claims"]}
    assert found == {"supported", "not testable", "not run"}
    assert {claim["paper"] for claim in result["claims"]} == {
        "holds",
        "contradicts itself",
        "not printed",
    }
    assert (smoke["out"] / "claims.md").exists()


def test_paper_column_needs_no_measured_table(tmp_path: Path) -> None:
    result = run_paper(_args("figure1", "--scale", "smoke", "--out", str(tmp_path / "out")))
    found = {claim["sentence"][:20]: claim["paper"] for claim in result["claims"]}
    assert found["Virtual Softmax degr"] == "holds"
    assert found["computation times re"] == "holds"
    assert not (tmp_path / "out" / "kept").exists()  # and nothing was measured for it


class Page(HTMLParser):
    """Balanced elements, anchors, links, and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("img", "br", "meta", "link"):
            self.open.append(tag)
        if given.get("id"):
            self.ids.add(str(given["id"]))
        if tag == "a":
            self.links.append(str(given["href"]))
        self.fetched += [str(given[key]) for key in ("src", "data") if given.get(key)]
        assert tag not in ("script", "iframe", "link")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_self_contained(smoke: dict[str, Any]) -> None:
    text = (smoke["out"] / "paper.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert {*SMOKED, "contents", "claims", "contradictions", "differences", "runs"} <= page.ids
    assert page.links.count("#contents") >= len(SMOKED)
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))
    assert all(source.startswith("data:") for source in page.fetched)
    assert "http://" not in text
    assert "https://" not in text
    assert all(link.startswith("#") for link in page.links)  # the page may be read anywhere
    identities = re.findall(r"<td>([0-9a-f]{12})</td>", text)
    assert len(set(identities)) == len(identities) > 100
    for identity in identities:
        assert (smoke["out"] / "runs" / identity / "run.json").exists()
    assert "no difference is colored" in text  # with one seed
    assert '<small class="better"' not in text


def test_finished_plan_says_so(smoke: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run_paper(_args("table1", "--plan", "--scale", "smoke", "--out", str(smoke["out"])))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 artifact at scale smoke: everything needed is finished."


def test_adding_a_table_keeps_the_others_on_the_page(smoke: dict[str, Any], tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "out"
    shutil.copytree(smoke["out"], out)
    (out / "table2.md").unlink()
    words = ("table2", "--scale", "smoke", "--out", str(out), "--threads", "1", "--json")
    result = run_paper(_args(*words))
    assert list(result["artifacts"]) == ["table2"]
    assert (out / "table2.md").exists()
    text = (out / "paper.html").read_text()
    assert all(f'id="{name}"' in text for name in SMOKED)


def test_entries_of_another_scale_are_ignored(smoke: dict[str, Any], tmp_path: Path) -> None:
    from proxysynth.paper.book import read_entries

    assert set(SMOKED) <= set(read_entries(smoke["out"], SCALES["smoke"]))
    assert not read_entries(smoke["out"], SCALES["small"])


def test_entries_of_an_earlier_version_are_kept(tmp_path: Path) -> None:
    from proxysynth.paper.book import read_entries

    made = {"table1": {"title": "Table 1", "about": "ablations"}}
    record = {"scale": "smoke", "settings": {}, "made": made}
    (tmp_path / "made.json").write_text(json.dumps(record))
    assert read_entries(tmp_path, SCALES["smoke"]) == ["table1"]
