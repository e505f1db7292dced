"""One shop for the session, and the service over it, in the process and on a port."""

from __future__ import annotations

import shutil
import warnings

import pytest

from web.serving import serving
from web.shop import make_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Tests may read it, not write."""
    place = tmp_path_factory.mktemp("shop")
    return make_shop(place)


@pytest.fixture
def own_shop(shop, tmp_path):
    """A copy of the index that a test may write to; pictures and run are the shop's."""
    shutil.copy(shop / "shop.index", tmp_path / "own.index")
    return tmp_path / "own.index"


@pytest.fixture
def client(shop):
    """The service, called in this process."""
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from proxysynth.search import Index
    from proxysynth.web import create_app

    app = create_app(Index.open(shop / "shop.index"))
    with TestClient(app, base_url="http://localhost:8000", raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="session")
def address(shop):
    """Where the service answers, on a port of its own."""
    pytest.importorskip("uvicorn")
    from proxysynth.search import Index
    from proxysynth.web import create_app

    with serving(create_app(Index.open(shop / "shop.index"))) as port:
        yield f"http://127.0.0.1:{port}"


# Not for the whole session: while it runs, asyncio.run fails in this thread.
@pytest.fixture(scope="module")
def browser():
    """Chromium, or a skip that says why there is none."""
    why = ""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        why = "the package playwright is not installed: pip install playwright"
    names = ("chromium", "chromium-browser", "google-chrome")
    place = next((found for found in map(shutil.which, names) if found), None)
    if not why and place is None:
        why = "there is no Chromium: install the package chromium of your system"
    if why:
        warnings.warn(f"browser tests are skipped: {why}", stacklevel=1)
        pytest.skip(why)
    with sync_playwright() as playwright:
        try:
            made = playwright.chromium.launch(
                executable_path=place, args=["--no-sandbox", "--disable-gpu"]
            )
        except Error as error:
            why = f"Chromium does not start: {str(error).splitlines()[0]}"
            warnings.warn(f"browser tests are skipped: {why}", stacklevel=1)
            pytest.skip(why)
        yield made
        made.close()
