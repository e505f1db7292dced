import re

from PIL import Image

from proxysynth.search import Index
from proxysynth.search.build import update_index
from proxysynth.search.contact_sheet import write_contact_sheet


def test_sheet_shows_queries_and_hits_in_order(index_file, photos, tmp_path):
    index = Index.open(index_file)
    Image.new("RGB", (50, 20), "red").save(tmp_path / "asked.png")
    queries = [tmp_path / "asked.png", "class0/1.png"]
    hits = index.search(queries, k=4)
    path = write_contact_sheet(tmp_path / "sheet.html", index, queries, hits)
    page = path.read_text().replace("<wbr>", "")
    assert page.count('src="data:image/png;base64,') == 6
    places = [page.index(f"{hit.path}</figcaption>") for hit in hits]
    assert places == sorted(places)
    for hit in hits:
        assert f"<b>{hit.similarity:.3f}</b>" in page
    assert "the mean of 2" in page
    assert not re.search(r"https?://", page)
    assert "<script" not in page


def test_missing_image_leaves_a_gap(index_file, photos, tmp_path):
    index = Index.open(index_file)
    hits = index.search("class0/1.png", k=2)
    index.path(hits[0].number).unlink()
    path = write_contact_sheet(tmp_path / "sheet.html", index, ["class0/1.png"], hits)
    assert path.read_text().count('class="gone"') == 1
    write_contact_sheet(path, index, ["class0/1.png"], [])
    assert "No image is that similar" in path.read_text()


def test_file_names_are_escaped_in_html(model, tmp_path):
    root = tmp_path / "photos" / "<b>label"
    root.mkdir(parents=True)
    for name in ('"><script>alert(1).png', "plain.png"):
        Image.new("RGB", (9, 9)).save(root / name.replace("/", ""))
    index = Index.open(update_index(model, tmp_path / "photos", tmp_path / "a.index").file)
    query = "<b>label/plain.png"
    path = write_contact_sheet(tmp_path / "sheet.html", index, [query], index.search(query))
    page = path.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>label" not in page
