"""The documentation site builds strictly and loads nothing from other hosts; its figure works."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from documents.pages import ROOT
from proxysynth.cli.parser import CHOICES, parser

# Slow, and needs the `docs` extra, which the other tests do not.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Fetched(HTMLParser):
    """Collects the addresses that a browser loads together with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if (tag, name) in FETCHED and value]


def test_pages_load_no_external_resources(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    foreign = {}
    for page in pages:
        reader = Fetched()
        reader.feed(page.read_text())
        found = [each for each in reader.addresses if re.match(r"(https?:)?//", each)]
        if found:
            foreign[str(page.relative_to(site))] = found
    assert not foreign
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", styles)


def test_every_command_and_method_is_documented(site: Path) -> None:
    shown = (site / "commands" / "index.html").read_text()
    listed = re.findall(r"^    (\w+) ", parser().format_help(), re.M)
    assert [name for name in listed if f"proxysynth {name}" not in shown] == []
    assert all((site / "losses" / name / "index.html").is_file() for name in CHOICES["LOSS"])
    methods = set(CHOICES["REGULARIZER"]) - {"none"}
    assert all((site / "regularizers" / name / "index.html").is_file() for name in methods)
    assert "ProxyHead" in (site / "api" / "proxy_head" / "index.html").read_text()
    assert list((site / "notebooks").glob("*/index.html"))
    assert not list(site.rglob("*.py"))


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figure_is_keyboard_accessible(address: str, scheme: str) -> None:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("there is no Chromium: install the package chromium of your system")
    from playwright.sync_api import sync_playwright

    requested: list[str] = []
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=browser_path, args=sandbox)
        page = browser.new_context(color_scheme=scheme).new_page()  # type: ignore[arg-type]
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{address}/concepts/")
        figure = page.locator("#synthesis-figure")
        figure.locator("input").focus()
        assert figure.locator("output").inner_text() == "0.50"
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        assert figure.locator("output").inner_text() == "0.60"
        page.keyboard.press("End")
        probabilities = figure.locator(".number").all_inner_texts()
        assert probabilities[:2] == ["100%", "0%"]  # at 1 the mixture is its first parent
        assert figure.locator("circle.s").count() > 0
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert 0 <= float(figure.locator("output").inner_text()) <= 1
        browser.close()
    assert [url for url in requested if not url.startswith((address, "data:", "blob:"))] == []
