"""The page as a person meets it, in headless Chromium; and its files, which fetch nothing else."""

from __future__ import annotations

import base64
import io
import itertools
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxysynth.formatting import distinct_captions
from web.made_index import write_vectors
from web.serving import serving
from web.shop import CLASSES, EACH

PHONE = {"viewport": {"width": 393, "height": 727}, "has_touch": True, "is_mobile": True,
         "device_scale_factor": 2}  # fmt: skip


@pytest.fixture
def open_page(browser, address):
    """Opens the page; at the end nothing may have been complained of or asked of another host."""
    opened = []

    def opening(path: str = "/", **how):
        context = browser.new_context(**how)
        page = context.new_page()
        page.set_default_timeout(20_000)
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else 0,
        )
        page.on("request", lambda asked: complaints.append(asked.url)
                if not asked.url.startswith((address, "blob:", "data:")) else 0)  # fmt: skip
        page.goto(address + path)
        opened.append((context, complaints))
        return page

    yield opening
    for context, complaints in opened:
        context.close()
        # The browser itself tells of what the service refuses; that is no fault of the page.
        assert [one for one in complaints if not re.search("404|409|415|422", one)] == []


def cards(page):
    return page.locator("#results .card:visible")


def upload(page, path) -> None:
    page.set_input_files("#file", path)
    page.locator("#results .closeness").first.wait_for()


def test_start_page(open_page) -> None:
    page = open_page()
    cards(page).first.wait_for()
    assert cards(page).count() == 24
    assert page.locator("#facts").text_content() == f"{len(CLASSES) * EACH} images · 8 labels"
    assert page.get_by_role("tab", name="Search").get_attribute("aria-selected") == "true"
    # A class with a strange name is text, not markup.
    assert page.get_by_text("egg & <spoon>").count() >= 1
    assert page.locator("spoon").count() == 0


def test_tall_image_does_not_stretch_its_card(open_page) -> None:
    page = open_page("/#map")
    tall = io.BytesIO()
    Image.new("RGB", (100, 300)).save(tall, "JPEG")
    page.route("**/thumbnail?*", lambda route: route.fulfill(body=tall.getvalue()))
    page.get_by_role("tab", name="Search").click()
    image = page.locator(".shot img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalHeight)") == 300
    shot = page.locator(".shot").first.bounding_box()
    assert shot["height"] == pytest.approx(shot["width"])


def test_upload_click_through_and_back(open_page, shop) -> None:
    page = open_page()
    upload(page, shop / "pictures" / "boat" / "1.jpg")
    first = cards(page).first
    assert first.get_attribute("aria-label").startswith("boat, boat/1.jpg, similarity 1.000")
    assert page.locator("#query-note").text_content() == "1.jpg"
    assert page.locator("#found-note").text_content() == "the 24 nearest"
    same = [card for card in cards(page).all() if "same class" in card.get_attribute("aria-label")]
    assert page.locator("#results .badge.same").count() == len(same) >= 1
    first.locator("img").wait_for()
    second = cards(page).nth(1).get_attribute("title").split(":")[0]
    cards(page).nth(1).click()
    page.locator("#query-note a").wait_for()
    assert page.locator("#query-note a").text_content() == second
    assert second not in [card.get_attribute("title") for card in cards(page).all()]
    page.go_back()
    page.get_by_text("1.jpg", exact=True).wait_for()
    page.get_by_role("button", name="Start over").click()
    page.get_by_role("heading", name="Images in the index").wait_for()


def test_filter_by_label_and_threshold(open_page, shop) -> None:
    page = open_page()
    upload(page, shop / "pictures" / "cup" / "2.png")
    page.get_by_label("Show", exact=True).select_option("48")
    page.get_by_text("the 48 nearest").wait_for()
    slider = page.get_by_label("Minimum similarity")
    slider.focus()
    page.keyboard.press("End")
    shown = cards(page).count()
    assert 1 <= shown < 48
    assert page.locator("#found-note").text_content().startswith(f"{shown} of 48")
    page.keyboard.press("Home")
    assert cards(page).count() == 48
    page.get_by_label("Label", exact=True).fill("Hat")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Nearest images labeled hat").wait_for()
    assert {name.text_content() for name in page.locator(".name").all()} == {"hat"}
    assert cards(page).count() == EACH
    page.get_by_role("button", name="Any label").click()
    page.get_by_text("the 48 nearest").wait_for()


def test_uploading_a_text_file_shows_an_error(open_page, shop, tmp_path) -> None:
    page = open_page()
    cards(page).first.wait_for()
    (tmp_path / "notes.jpg").write_text("these are notes, not a picture")
    page.set_input_files("#file", tmp_path / "notes.jpg")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.text_content().startswith("The file is not an image that can be read: ")
    assert alert.text_content().endswith(".")
    upload(page, shop / "pictures" / "cup" / "2.png")
    assert not alert.is_visible()


def test_unknown_label_shows_a_suggestion(open_page) -> None:
    page = open_page("/#item/3")
    page.get_by_label("Label", exact=True).fill("cupp")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("did you mean 'cup'?").wait_for()
    assert page.get_by_role("heading", name="No results").is_visible()
    assert not page.locator("#nothing").is_visible()


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_image_can_be_dropped_or_pasted(open_page, shop, way) -> None:
    page = open_page()
    cards(page).first.wait_for()
    data = base64.b64encode((shop / "pictures" / "gate" / "0.png").read_bytes()).decode()
    page.evaluate(
        """([way, data]) => {
            const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
            const held = new DataTransfer();
            held.items.add(new File([bytes], "gate.png", { type: "image/png" }));
            window.dispatchEvent(way === "drop"
                ? new DragEvent("drop", { dataTransfer: held, cancelable: true })
                : new ClipboardEvent("paste", { clipboardData: held }));
        }""",
        [way, data],
    )
    page.locator("#results .closeness").first.wait_for()
    assert cards(page).first.get_attribute("aria-label").startswith("gate, gate/0.png")


def test_keyboard_navigation(open_page) -> None:
    page = open_page()
    cards(page).first.wait_for()
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.className")
        )
    assert reached[:3] == ["skip", "tab-search", "file"]
    assert "label" in reached
    assert "card" in reached
    while page.evaluate("document.activeElement.className") != "card":
        page.keyboard.press("Tab")
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width == "3px"  # the focus is seen
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    second = cards(page).nth(1)
    assert second.evaluate("(card) => card === document.activeElement")
    page.keyboard.press("Enter")
    page.locator("#query-note a").wait_for()
    page.locator("#tab-search").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#view-map").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#view-report").wait_for()


DOT = """(canvas) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    for (let x = left + 10; x < left + width; x += 20) {
        for (let y = top + 10; y < top + height; y += 20) {
            const place = { clientX: x, clientY: y };
            canvas.dispatchEvent(new PointerEvent("pointermove", place));
            if (canvas.classList.contains("pointing")) return [x, y];
        }
    }
}"""  # a place of the map where hovering shows an image


def test_map_hover_zoom_and_search(open_page) -> None:
    page = open_page("/#map")
    page.get_by_text("48 images; similar ones are near each other").wait_for()
    assert page.get_by_text("unseen class").count() == 1  # the legend
    canvas, tip = page.locator("#canvas"), page.locator("#tip")
    inked = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, i) => i % 4 === 3 && value).length;
    }"""
    page.wait_for_timeout(100)
    before = canvas.evaluate(inked)
    assert before > 48 * 9
    page.mouse.move(*canvas.evaluate(DOT))
    assert tip.is_visible()
    assert tip.locator("figcaption").text_content()
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_timeout(100)
    assert canvas.evaluate(inked) != before
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Highlight").fill("drum")
    page.wait_for_timeout(100)
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")
    assert tip.is_visible()
    page.keyboard.press("Enter")
    page.locator("#query-note a").wait_for()
    assert re.search(r"#item/\d+/", page.url)


def test_every_view_has_a_url(open_page, shop) -> None:
    page = open_page()
    cards(page).first.wait_for()
    page.get_by_role("tab", name="Map").click()
    the_map, note = page.locator("#view-map"), page.get_by_text("48 images; similar ones")
    note.wait_for()
    assert page.url.endswith("/#map")
    page.reload()
    note.wait_for()
    assert page.evaluate("scrollY") == 0
    page.get_by_role("tab", name="Report").click()
    page.locator("#report-frame").wait_for()
    page.go_back()
    the_map.wait_for()
    page.go_back()
    cards(page).first.wait_for()
    assert not the_map.is_visible()
    page.go_forward()
    the_map.wait_for()
    assert page.get_by_role("tab", name="Map").get_attribute("aria-selected") == "true"
    upload(page, shop / "pictures" / "boat" / "1.jpg")
    page.reload()  # which drops the uploaded image
    page.get_by_role("alert").get_by_text("choose it again").wait_for()
    assert page.url.endswith("/#search")
    for shared in ("/#map", "/#/map"):  # the latter: as it was called before
        open_page(shared).get_by_text("48 images; similar ones").wait_for()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("item/3/older", "has been replaced"),
        ("item/999", "there is no 999"),
        ("item/three", "does not point to an image"),
    ],
)
def test_url_of_a_missing_image_shows_an_error(open_page, place, sentence) -> None:
    open_page(f"/#{place}").get_by_role("alert").get_by_text(sentence).wait_for()


def test_report_is_shown_in_a_sandboxed_frame(open_page) -> None:
    page = open_page("/#report")
    frame = page.frame_locator("#report-frame")
    frame.get_by_text("Recall@1").first.wait_for()
    assert page.locator("#report-frame").get_attribute("sandbox") == ""


LABELS = [f"{maker} {kind} {size}" for maker in ("Garant Ecological", "Bravo", "Arla of Sweden")
          for kind in ("Medium Fat Milk", "Orange Juice with Pulp", "Natural Yoghurt")
          for size in ("in a large carton of 1.5 liters", "in a large carton of 1.0 liters",
                       "small")]  # fmt: skip


@pytest.fixture(scope="module")
def long_labels(tmp_path_factory):
    """The address of a service with 27 long labels, some of which differ at the end only."""
    from proxysynth.search import Index
    from proxysynth.web import create_app

    file = tmp_path_factory.mktemp("labels") / "long.index"
    centers = np.random.default_rng(0).normal(size=(len(LABELS), 16))
    counts = [2 + c % 5 for c in range(len(LABELS))]
    labels = np.repeat(LABELS, counts).tolist()
    x = np.repeat(centers, counts, axis=0)
    write_vectors(file, x + 0.3 * np.random.default_rng(1).normal(size=x.shape), labels=labels)
    with serving(create_app(Index.open(file))) as port:
        yield f"http://127.0.0.1:{port}"


def test_captions_of_different_labels_differ(long_labels, browser) -> None:
    page = browser.new_page()
    page.goto(long_labels)
    page.locator("#results .name").first.wait_for()
    page.evaluate(
        "import('/page/captions.js').then(module => { window.captions = module.captions })"
    )
    script = "([labels, width]) => [...captions(labels, width)]"
    for width in (12, 20, 28, 40):
        made = dict(page.evaluate(script, [LABELS, width]))
        assert made == distinct_captions(LABELS, width)
        assert len(set(made.values())) == len(LABELS)
    for name in page.locator("#results .name").all():  # nothing is hidden by the style either
        assert name.evaluate("e => e.scrollHeight <= e.clientHeight + 1")
    page.close()


RECORD = """
const draw = CanvasRenderingContext2D.prototype.fillText;
const clear = CanvasRenderingContext2D.prototype.clearRect;
window.drawn = [];
CanvasRenderingContext2D.prototype.clearRect = function (...box) {
  window.drawn = [];
  clear.apply(this, box);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const m = this.measureText(text);
  window.drawn.push([text, x - m.width / 2, y - m.actualBoundingBoxAscent, x + m.width / 2,
                     y + m.actualBoundingBoxDescent]);
  draw.call(this, text, x, y);
};
"""


@pytest.mark.parametrize("width", [1200, 400])
def test_map_labels_do_not_overlap(long_labels, browser, width) -> None:
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.add_init_script(RECORD)
    page.goto(f"{long_labels}/#map")
    page.get_by_text("images; ").wait_for()
    seen = set()
    for _ in range(8):
        page.wait_for_timeout(60)
        drawn = page.evaluate("window.drawn")
        canvas = page.locator("#canvas").bounding_box()
        for (_, left, top, right, bottom), other in itertools.combinations(drawn, 2):
            _, left2, top2, right2, bottom2 = other
            assert right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
        for _, left, top, right, _ in drawn:
            assert left >= 0
            assert right <= canvas["width"]
            assert top >= 0
        seen.add(len(drawn))
        page.locator("#zoom-in").click()
    assert 0 < max(seen) < len(LABELS)
    page.locator("#zoom-all").click()
    page.locator("#map-label").fill(LABELS[4])
    page.wait_for_timeout(60)
    (only,) = page.evaluate("window.drawn")
    assert only[0] == distinct_captions(LABELS, 28)[LABELS[4]]
    page.close()


def test_mobile_page_does_not_scroll_horizontally(open_page, shop) -> None:
    page = open_page(**PHONE)
    upload(page, shop / "pictures" / "flag" / "3.jpg")
    for tab in ("Search", "Map", "Report"):
        page.get_by_role("tab", name=tab).tap()
        page.wait_for_timeout(100)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, tab
    page.get_by_role("tab", name="Search").tap()
    cards(page).nth(2).tap()
    page.locator("#query-note a").wait_for()


def test_dark_mode_follows_the_system(open_page) -> None:
    light, dark = (
        open_page(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    )
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(20, 22, 26)"


def test_page_files_link_to_no_other_host() -> None:
    from proxysynth.web.app import TYPES

    for file in files("proxysynth.web").joinpath("page").iterdir():
        name, text = file.name, file.read_text(encoding="utf-8")
        assert Path(name).suffix in TYPES, name
        links = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}\S*", text)
        assert [link for link in links if "www.w3.org/2000/svg" not in link] == [], name
        assert "style=" not in text, name  # the policy forbids styles and scripts in line
        assert not re.search(r"\son[a-z]+=", text), name
