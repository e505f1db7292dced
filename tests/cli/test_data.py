import json

from benchmark_imitations import cub200
from cli.running import run


def test_urls_are_not_cut_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = run(capsys, "data", "list", "--json")
    addresses = [row["published"] for row in json.loads(out)["benchmarks"]]
    _, out, _ = run(capsys, "data", "list")
    assert [address for address in addresses if address not in out] == []


def test_incomplete_copy_is_reported_as_json(capsys, tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    (root / "images/003.Crow/2.jpg").unlink()
    code, out, err = run(capsys, "data", "check", "cub200", str(root), "--json")
    printed = json.loads(out)
    assert code == 1
    assert printed["missing"] == ["images/003.Crow/2.jpg"]
    assert not printed["complete"]
    assert "--allow-incomplete" in err


def test_prepare_suggests_its_own_option_for_unreadable_images(capsys, tmp_path, monkeypatch):
    root = cub200(tmp_path / "birds", monkeypatch)
    (root / "images/003.Crow/2.jpg").write_text("<!DOCTYPE html><html>")
    code, _, err = run(capsys, "data", "prepare", "cub200", str(root), "--side", "20")
    assert code == 1
    assert "003.Crow/2.jpg (it is an HTML page" in err
    assert "--allow-incomplete" in err
    assert "--skip-bad" not in err
