"""The command line as a person or a script meets it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import proxysynth
from cli.running import run
from proxysynth.cli import main
from proxysynth.cli.bench import find_benchmarks
from proxysynth.cli.parser import parser


def test_python_m_prints_the_version() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "proxysynth", "--version"], capture_output=True, text=True
    )
    assert out.stdout.strip() == f"proxysynth {proxysynth.__version__}"


def test_every_option_has_help_and_a_default(capsys) -> None:
    _, top, _ = run(capsys, "--help")
    commands = re.findall(r"^    (\w+) ", top, re.M)
    assert {"train", "eval", "search", "bench"} <= set(commands)
    for command in [*([name] for name in commands), ["data", "check"], ["data", "prepare"]]:
        _, text, _ = run(capsys, *command, "--help")
        entries = re.split(r"\n  (?=-)", text.partition("\noptions:")[2])[1:]
        assert entries
        for entry in entries:
            flags, about = re.match(r"((?:-\S+(?: [A-Z]\S*)?,? ?)+)(.*)", entry, re.S).groups()
            assert about.strip(), f"{command}: {flags} has no help"
            if re.search(r" [A-Z]", flags):  # it takes a value
                assert re.search("default:|required", about), f"{command}: {flags}"


def test_bench_prints_tables_and_json_and_writes_csv(capsys, tmp_path, monkeypatch) -> None:
    rows = [
        {"bench": "step", "table": "step", "method": "plain", "ms": 1.5, "reached": None},
        {"bench": "step", "table": "memory kept", "method": "plain", "ms": 1.0, "reached": True},
    ]
    monkeypatch.setattr(find_benchmarks(), "measure", lambda name, quick: rows)
    code, out, _ = run(capsys, "bench", "step", "--json", "--save", str(tmp_path))
    assert code == 0
    printed = json.loads(out.strip().splitlines()[-1])
    assert printed["rows"] == rows
    assert printed["torch"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["bench_step.csv", "bench_step_memory_kept.csv"]
    code, out, _ = run(capsys, "bench", "step")
    assert code == 0
    assert "plain" in out
    assert "step: memory kept" in out


def test_bench_requires_a_clone(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxysynth.__file__", str(tmp_path / "lib/python/proxysynth/__init__.py"))
    code, out, err = run(capsys, "bench", "step")
    assert (code, out) == (2, "")
    assert "clone" in err


SMALL = ["--set", "split.train_classes=6", "--set", "split.test_classes=6", "--set", "dim=16"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two small runs that differ in the seed."""
    folder = tmp_path_factory.mktemp("cli")
    for seed in ("0", "1"):
        with pytest.raises(SystemExit) as ended:
            main(["train", "--epochs", "1", "--seed", seed, "--out", str(folder / seed), *SMALL])
        assert ended.value.code == 0
    return folder


def test_train_writes_the_documented_files(trained) -> None:
    names = {path.name for path in (trained / "0").iterdir()}
    assert {"run.json", "metrics.jsonl", "checkpoint", "result.json", "report.html"} <= names


def test_finished_run_prints_its_result_again(trained, capsys) -> None:
    code, out, err = run(
        capsys, "train", "--epochs", "1", "--out", str(trained / "0"), *SMALL, "--json"
    )
    assert code == 0
    assert "epoch 1/1" not in err
    printed = json.loads(out)
    assert (
        printed["metrics"]["recall@1"]
        == json.loads((trained / "0/result.json").read_text())["metrics"]["recall@1"]
    )
    code, out, _ = run(capsys, "train", "--resume", "--out", str(trained / "0"), "--json")
    assert code == 0
    assert json.loads(out)["metrics"] == printed["metrics"]


def test_different_run_is_rejected(trained, capsys) -> None:
    code, out, err = run(capsys, "train", "--epochs", "2", "--out", str(trained / "0"), *SMALL)
    assert code == 2
    assert f"--resume --out {trained / '0'} --epochs 2" in err
    assert err.count("\n") == 1
    assert out == ""


def test_eval_reproduces_the_metrics_of_the_run(trained, capsys) -> None:
    code, out, _ = run(capsys, "eval", str(trained / "0"), "--json")
    assert code == 0
    printed = json.loads(out)
    own = json.loads((trained / "0/result.json").read_text())["metrics"]
    assert printed["metrics"] == pytest.approx(own)
    code, out, _ = run(capsys, "eval", str(trained / "0"), "--ks", "1,3", "--nmi")
    assert code == 0
    assert "R@3" in out
    assert "NMI" in out


def test_piped_output_is_not_wrapped(trained, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    long = tmp_path / ("a folder of a long name" * 5)
    shutil.copytree(trained / "0", long)
    code, out, _ = run(capsys, "compare", long, trained / "1")
    assert code == 0
    assert long.name in out


def test_compare_prints_and_writes_a_page(trained, capsys, tmp_path) -> None:
    runs = [str(trained / "0"), str(trained / "1")]
    code, out, _ = run(capsys, "compare", *runs, "-o", str(tmp_path / "page.html"))
    assert code == 0
    assert "R@1" in out
    assert "<html" in (tmp_path / "page.html").read_text()
    code, out, _ = run(capsys, "compare", *runs, "--json")
    assert json.loads(out)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["bnech"], "did you mean 'bench'?"),
        (["data", "chekc"], "did you mean 'check'?"),
        (["bench", "stpe"], "did you mean 'step'?"),
        (["bench", "--fast"], "--fast"),
        (["train", "--epocs", "1"], "did you mean '--epochs'? see `proxysynth train --help`"),
        (["train", "--epoch", "1"], "did you mean '--epochs'?"),  # no abbreviations
        (["data", "check", "cub200", ".", "--allow"], "'--allow'"),
        (["train", "photos", "more"], "'more'"),
        (["train", "no/such/folder"], "no/such/folder"),
        (["train", "--loss", "arcfase"], "did you mean 'arcface'?"),
        (["train", "--regularizer", "mixup"], "'mixup'"),
        (["train", "--set", "lrr=1"], "did you mean 'lr'?"),
        (["train", "--set", "data=photos"], "'photos'"),
        (["train", "--set", "regularizer.loss=cosface"], "--loss"),
        (["train", "--set", "loss.scale=-1"], "scale"),
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--device", "gpu"], "'gpu'"),
        (["train", "--resume"], "--out"),
        (["train", "--config", "no.toml"], "no.toml"),
        (["eval", "no/such/run"], "no/such/run"),
        (["eval"], "RUN"),
        (["compare", "no/such/run", "nor/this"], "no/such/run"),
    ],
)
def test_usage_error_is_one_line_and_exits_with_2(
    capsys, argv, expected, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["train", "--out=~/x"], "out"),
        (["eval", "r", "--sheet", "~/x"], "sheet"),
        (["bench", "--save", "~/x"], "save"),
        (["export", "a", "--to", "onnx", "-o", "~/x"], "out"),
    ],
)
def test_tilde_is_expanded(argv, name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert getattr(parser().parse_args(argv), name) == tmp_path / "x"


@pytest.mark.parametrize("argv", [["compare", "a", "b"], ["search", "i", "p"], ["duplicates", "i"]])
def test_pages_are_html(argv, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert parser().parse_args([*argv, "-o", "~/x.HTM"]).out == tmp_path / "x.HTM"
    for name in ("s.png", "s"):
        code, _, err = run(capsys, *argv, "-o", name)
        assert code == 2
        assert "use s.html" in err


def test_data_list_and_check(capsys, tmp_path) -> None:
    code, out, _ = run(capsys, "data", "list", "--json")
    assert code == 0
    assert {row["name"] for row in json.loads(out)["benchmarks"]} >= {"cub200", "sop", "cifar10"}
    code, out, _ = run(capsys, "data", "list")
    assert "5,864" in out
    code, _, err = run(capsys, "data", "check", "cub200", str(tmp_path))
    assert code == 1
    assert err.count("\n") == 1
    code, _, err = run(capsys, "data", "check", "cub20", str(tmp_path))
    assert code == 2
    assert "did you mean 'cub200'?" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_stdout_is_a_one_line_error() -> None:
    command = [sys.executable, "-m", "proxysynth", "data", "list", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "no space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("argv", ["data list", "paper --list", "data list --json"])
def test_closed_pipe_is_not_an_error(argv) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "proxysynth", *argv.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("argv", [["train", "--epochs", "0"], ["--traceback", "trian"]])
def test_traceback_is_shown_on_request(capsys, argv) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert ("Traceback" in err) == ("--traceback" in argv)
    code, _, err = run(capsys, *argv, "--traceback")
    assert code == 2
    assert "Traceback" in err


def test_json_has_no_nan(capsys, monkeypatch) -> None:
    monkeypatch.setattr("proxysynth.cli.compare.run_compare", lambda args: {"x": math.nan})
    code, out, err = run(capsys, "compare", "one", "two", "--json")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1


def test_out_of_memory_is_a_one_line_error(capsys, monkeypatch) -> None:
    def full(args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("proxysynth.cli.compare.run_compare", full)
    code, out, err = run(capsys, "compare", "one", "two")
    assert (code, out) == (1, "")
    assert "out of memory" in err
    assert err.count("\n") == 1
