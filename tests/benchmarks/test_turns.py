"""Each method is measured in a process of its own, in its turn."""

import os
from pathlib import Path

import pytest

from benchmarks.turns import Step, Turns, seconds_over_lives

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _found_by_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def failing(name: str, c: int) -> Step:
    raise ValueError(f"no step at {c}")


def dying(name: str, c: int) -> Step:
    return lambda: os._exit(1)


def noting(name: str, c: int) -> Step:
    """Leaves its name and process in a file at every step."""
    path = Path(os.environ["NOTES"])

    def step() -> None:
        with path.open("a") as file:
            file.write(f"{name} {os.getpid()}\n")

    return step


def test_every_method_has_a_process_and_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    with Turns(noting, ("a", "b")) as turns:
        seconds = turns.seconds(1, threads=1, rounds=2, steps=3)
    assert min(seconds.values()) > 0
    lines = [line.split() for line in notes.read_text().splitlines()]
    turns_taken = [lines[at : at + 4] for at in range(0, len(lines), 4)]  # one that does not count
    assert all(len({name for name, _ in turn}) == 1 for turn in turns_taken)
    assert sorted(turn[0][0] for turn in turns_taken) == ["a"] * 3 + ["b"] * 3
    processes = {name: {pid for other, pid in lines if other == name} for name in ("a", "b")}
    assert len(processes["a"]) == len(processes["b"]) == 1
    assert processes["a"] != processes["b"]


def test_a_failure_is_named() -> None:
    with (
        Turns(failing, ("bad",)) as turns,
        pytest.raises(RuntimeError, match="bad.*no step at 3"),
    ):
        turns.seconds(3, threads=1, rounds=1, steps=1)


def test_a_process_that_ends_is_named() -> None:
    with Turns(dying, ("a",)) as turns, pytest.raises(RuntimeError, match="a ended"):
        turns.seconds(1, threads=1, rounds=1, steps=1)


def test_processes_are_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    found = seconds_over_lives(lambda: Turns(noting, ("a",)), 2, 1, 1, rounds=1, steps=1)
    assert set(found) == {"a"}
    assert len({line.split()[1] for line in notes.read_text().splitlines()}) == 2
