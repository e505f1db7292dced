"""The command line as a person or a script meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import proxysynth
from proxysynth.cli import main


def run(capsys, *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_version_and_module() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "proxysynth", "--version"], capture_output=True, text=True
    )
    assert out.stdout.strip() == f"proxysynth {proxysynth.__version__}"


def test_help_names_every_verb(capsys) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "bench" in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["bnech"], "invalid choice: 'bnech'"),
        (["bench", "stpe"], "unknown bench 'stpe': did you mean 'step'?"),
        (["bench", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_with_2(capsys, argv, expected) -> None:
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert expected in err
    assert err.count("\n") == 1


def test_bench_quick_as_json_and_csv(capsys, tmp_path) -> None:
    code, out, _ = run(capsys, "bench", "step", "--quick", "--json", "--save", str(tmp_path))
    assert code == 0
    told = json.loads(out.strip().splitlines()[-1])
    methods = {row["method"] for row in told["rows"] if row["table"] == "step"}
    assert {"plain", "authors' formulation", "reference", "fused"} <= methods
    assert told["torch"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "bench_step.csv",
        "bench_step_other_fused_losses.csv",
        "bench_step_table_a.csv",
    ]


def test_bench_quick_as_tables(capsys) -> None:
    code, out, _ = run(capsys, "bench", "memory", "--quick")
    assert code == 0
    assert "fused" in out
    assert "extra mb" in out
