"""One shop for the session, and the service over it, in the process and on a port."""

from __future__ import annotations

import shutil
import socket
import threading
import time

import pytest

from web.shop import make_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Tests may read it, not write."""
    place = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYSYNTH_CACHE", str(place / "cache"))
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
    """The service on a port of its own, in a thread."""
    pytest.importorskip("uvicorn")
    import uvicorn

    from proxysynth.search import Index
    from proxysynth.web import create_app
    from proxysynth.web.server import listen

    bound = listen("127.0.0.1", 0)
    config = uvicorn.Config(create_app(Index.open(shop / "shop.index")), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    assert isinstance(bound, socket.socket)
