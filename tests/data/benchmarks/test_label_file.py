import pytest

from proxysynth.data.benchmarks.label_file import picture_name, rows, whole_number


def write(tmp_path, data):
    path = tmp_path / "labels.txt"
    path.write_bytes(data)
    return path


def test_rows_are_cut_at_white_space(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbf1 a/b c.jpg \r\n\n  2\td.jpg")
    found = list(rows(path, ("number", "path")))
    assert [row.columns for row in found] == [["1", "a/b c.jpg"], ["2", "d.jpg"]]
    assert [row.where for row in found] == [f"line 1 of {path}", f"line 3 of {path}"]


def test_rows_after_a_header(tmp_path):
    path = write(tmp_path, b"2\nname   part\na.jpg train\nb.jpg test\n")
    found = list(rows(path, ("name", "part"), header="name"))
    assert [row.columns for row in found] == [["a.jpg", "train"], ["b.jpg", "test"]]
    assert found[0].where == f"line 3 of {path}"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1 a.jpg\n2\n", "line 2 of .*labels.txt must have number, path, got '2'"),
        (b"<!DOCTYPE\n", "line 1 of .*labels.txt must have number, path"),
        (b"\xff\xfe\x00", "must be a text file in UTF-8"),
    ],
)
def test_bad_lines(tmp_path, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        list(rows(write(tmp_path, data), ("number", "path")))
    assert "\n" not in str(caught.value)


def test_no_header_and_no_file(tmp_path):
    for data in (b"", b"<html>\n<body>\n"):
        with pytest.raises(ValueError, match="must start with a line of name, part"):
            list(rows(write(tmp_path, data), ("name", "part"), header="name"))
    with pytest.raises(ValueError, match="cannot read .*none.txt .no such file"):
        list(rows(tmp_path / "none.txt", ("name",)))
    with pytest.raises(ValueError, match="cannot read"):
        list(rows(tmp_path, ("name",)))


@pytest.mark.parametrize("text", ["-1", "1.0", "x", "", "²"])
def test_whole_numbers(text):
    assert whole_number("042", "here") == 42
    with pytest.raises(ValueError, match="here must have a whole number"):
        whole_number(text, "here")


@pytest.mark.parametrize("text", ["/etc/passwd", "../a.jpg", "a/../../b.jpg", ".", "..", "a/.."])
def test_a_picture_stays_in_its_folder(text):
    assert picture_name("./a//b/../c.jpg", "here") == "a/c.jpg"
    with pytest.raises(ValueError, match="here must name a picture under its own folder"):
        picture_name(text, "here")
