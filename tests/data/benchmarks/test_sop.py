import pytest

from benchmark_imitations import sop
from proxysynth.data import open_data


def test_the_label_files_are_the_split(tmp_path, monkeypatch):
    splits = open_data(f"sop:{sop(tmp_path / 'Stanford_Online_Products', monkeypatch).parent}")
    assert splits.train.classes == ("1", "2")
    assert splits.test.classes == ("9", "11")  # by number, not by text
    assert splits.train.labels.tolist() == [0, 0, 1]
    assert splits.test.labels.tolist() == [1, 1, 0, 0, 0]
    assert splits.train.names[0] == "bicycle_final/1_1.JPG"
    assert splits.test.names[-1] == "chair_final/9_8.JPG"
    assert all(splits.test.path(i).is_file() for i in range(5))


def test_bad_label_files(tmp_path, monkeypatch):
    root = sop(tmp_path, monkeypatch)
    file = root / "Ebay_test.txt"
    whole = file.read_text()
    for text, words in (
        (whole.replace("4 11", "4 x"), "line 2 of .*Ebay_test.txt must have a whole number"),
        (whole + "9 9 1", "line 7 of .*Ebay_test.txt must have image_id, class_id"),
        ("<html>Not found</html>", "Ebay_test.txt must start with a line of image_id"),
        (whole.replace("chair_final", "../../chair"), "must name a picture under its own folder"),
        (whole + "9 9 1 bicycle_final/1_1.JPG\n", r"Ebay_test.txt names bicycle_final/1_1.JPG aga"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"sop:{root}")
        assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(ValueError, match="cannot read .*Ebay_test.txt .no such file"):
        open_data(f"sop:{root}")
