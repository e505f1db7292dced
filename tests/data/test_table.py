import pytest

from proxysynth.data import ClassSplit, open_table
from proxysynth.data.table import whole_table

FOUR = {"ants": 2, "bees": 2, "cats": 2, "dogs": 2}


@pytest.fixture
def root(make_folder):
    return make_folder(FOUR)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows(root):
    found = sorted(root.rglob("*.png"))
    return [f"{p.relative_to(root).as_posix()},{p.parent.name}" for p in found]


def test_path_and_label(root):
    splits = open_table(write(root / "all.csv", "path,label", *rows(root)))
    assert sorted((*splits.train.classes, *splits.query.classes)) == sorted(FOUR)
    assert all(splits.train.path(i).is_file() for i in range(len(splits.train)))


def test_labels_are_the_tables_not_the_folders(root):
    lines = [f"{row.split(',')[0]},{i % 4}" for i, row in enumerate(rows(root))]
    splits = open_table(
        write(root / "all.csv", "path,label", *lines), ClassSplit(unseen_classes=("0", "1"))
    )
    assert splits.query.classes == ("0", "1")


def test_the_column_split(root):
    part = {"ants": "train", "bees": "Train", "cats": "test", "dogs": " test"}
    lines = [f"{row},{part[row.split(',')[1]]}" for row in rows(root)]
    splits = open_table(write(root / "all.csv", "path,label,split", *lines))
    assert splits.train.classes == ("ants", "bees")
    assert splits.test.classes == ("cats", "dogs")


def test_query_gallery_and_validation(root):
    lines = [
        *("ants/0.png,a,train", "bees/0.png,b,train", "ants/1.png,v,validation"),
        *("cats/0.png,c,query", "cats/1.png,c,gallery", "dogs/0.png,d,gallery"),
    ]
    splits = open_table(write(root / "all.csv", "path,label,split", *lines))
    assert splits.query.classes == splits.gallery.classes == ("c", "d")
    assert len(splits.gallery) == 2
    assert splits.validation.classes == ("v",)


def test_root_byte_order_mark_quotes_blank_lines_and_absolute_paths(root, tmp_path):
    lines = rows(root)
    lines[0] = f'"{root / lines[0].split(",")[0]}","ants"'
    text = "\ufeffPath, Label\r\n" + "\r\n\r\n".join(lines)
    (tmp_path / "elsewhere.csv").write_text(text, encoding="utf-8")
    splits = open_table(tmp_path / "elsewhere.csv", root=root)
    assert len(splits.train) + len(splits.query) == 8
    assert splits.train.root == root


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([""], "must start with the line path,label"),
        (["file,class", "a,b"], "got file,class"),
        (["path,label"], "must list pictures below its header, got none"),
        (["path,label", "a.jpg"], "line 2 of all.csv must have 2 columns, got 1"),
        (["path,label", "a.jpg,"], "line 2 of all.csv must have a label"),
        (["path,label", "../a.jpg,x"], "line 2 of all.csv must name a file under"),
        (["path,label", "/etc/a.jpg,x"], "line 2 of all.csv must name a file under"),
        (["path,label", "a/../../a.jpg,x"], "must name a file under"),
        (["path,label", ",x"], "must name a file under"),
        (["path,label", "a.jpg,x", "./a.jpg,y"], r"line 3 .* names a.jpg again, as line 2"),
        (["path,label,split", "a.jpg,x,both"], "must have a split of train, .* got 'both'"),
        (["path,label,split", "a.jpg,x,train"], "must name train and test, .* got train"),
    ],
)
def test_faults_are_named(root, lines, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_table(write(root / "all.csv", *lines))
    assert "\n" not in str(caught.value)


def test_what_to_do_about_a_path_outside_is_something_the_caller_has(root):
    table = write(root / "all.csv", "path,label", "../a.jpg,x")
    with pytest.raises(ValueError, match=r"--set split\.root=DIR"):
        open_table(table)
    with pytest.raises(ValueError, match="put the CSV into a folder that holds all pictures"):
        whole_table(table)


def test_other_faults(root):
    with pytest.raises(ValueError, match="cannot read .* No such file"):
        open_table(root / "missing.csv")
    (root / "all.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(ValueError, match="not a CSV in UTF-8"):
        open_table(root / "all.csv")
    write(root / "all.csv", "path,label,split", "a,x,train", "b,y,train", "c,z,test")
    with pytest.raises(ValueError, match="no other rule"):
        open_table(root / "all.csv", ClassSplit())


def test_a_root_that_is_not_there(root):
    with pytest.raises(ValueError, match=r"there is no folder .*elsewhere: split\.root is where"):
        open_table(root / "table.csv", root=root / "elsewhere")
