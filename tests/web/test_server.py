"""Listening, and what the command says when it cannot."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("uvicorn")

from proxysynth.cli import main
from proxysynth.web.server import listen, url


def ended(capsys, *argv: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(argv)
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return end.value.code, err


def test_invalid_or_missing_index_is_rejected(capsys, tmp_path) -> None:
    (tmp_path / "x.index").write_bytes(b"this is not an index")
    code, err = ended(capsys, "serve", str(tmp_path / "x.index"))
    assert code == 2
    assert "is not an index of proxysynth" in err
    code, err = ended(capsys, "serve", str(tmp_path / "none.index"))
    assert code == 2
    assert "there is no index" in err


def test_port_in_use_is_reported(capsys, shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, err = ended(capsys, "serve", str(shop / "shop.index"), "--port", str(port))
    assert code == 1
    assert f"port {port} of 127.0.0.1" in err
    assert "--port" in err


def test_invalid_port_is_rejected(capsys, shop) -> None:
    code, err = ended(capsys, "serve", str(shop / "shop.index"), "--port", "99999")
    assert code == 2
    assert "--port" in err
    assert "99999" in err


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_unknown_host_is_rejected(capsys, shop, host) -> None:
    code, err = ended(capsys, "serve", str(shop / "shop.index"), "--host", host)
    assert code == 1
    assert "--host" in err


def test_address_of_another_machine_is_rejected(capsys, shop) -> None:
    code, err = ended(capsys, "serve", str(shop / "shop.index"), "--host", "192.0.2.1")
    assert code == 1
    assert "192.0.2.1" in err
    assert "--host" in err


def test_missing_extra_is_named_in_the_error(capsys, shop, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, err = ended(capsys, "serve", str(shop / "shop.index"))
    assert code == 1
    assert "uvicorn" in err
    assert "pip install 'proxysynth[serve]'" in err


def test_displayed_urls() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert url(bound, "127.0.0.1") == f"http://127.0.0.1:{port}"
        assert url(bound, "0.0.0.0") == f"http://localhost:{port}"
        assert url(bound, "::1") == f"http://[::1]:{port}"


def test_idle_connection_is_closed(shop, monkeypatch) -> None:
    import threading

    from proxysynth.search import Index
    from proxysynth.web import server

    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    made = []
    real = server.uvicorn.Server
    monkeypatch.setattr(
        server.uvicorn, "Server", lambda config: made.append(real(config)) or made[0]
    )
    bound = listen("127.0.0.1", 0)
    index = Index.open(shop / "shop.index")
    thread = threading.Thread(target=server.serve, args=(index, bound, "127.0.0.1"), daemon=True)
    thread.start()
    port = bound.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert slow.recv(100) == b""  # closed, without a word
    quick = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    quick.connect()
    first = quick.sock.getsockname()
    for _ in range(3):
        quick.request("GET", "/api/health")
        assert json.load(quick.getresponse())["status"] == "ok"
        time.sleep(0.2)
    assert quick.sock.getsockname() == first  # one that asks again and again stays open
    quick.close()
    made[0].should_exit = True
    thread.join(20)


def test_serve_reloads_on_signal_and_stops_on_interrupt(shop, tmp_path) -> None:
    pictures = shutil.copytree(shop / "pictures", tmp_path / "pictures")
    next(pictures.rglob("*.png")).unlink()
    command = [sys.executable, "-m", "proxysynth", "serve", str(shop / "shop.index"), "--port", "0",
               "--folder", str(pictures), "--access-log", "-"]  # fmt: skip
    pipe = subprocess.PIPE
    served = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))
    try:
        warning, line = served.stderr.readline(), served.stderr.readline()
        assert f"1 of 48 images is not in {pictures}" in warning.split("--folder")[0]
        assert "48 images at http://127.0.0.1:" in line
        address = line.split(" at ")[1].split()[0]
        with urllib.request.urlopen(f"{address}/api/health", timeout=30) as answer:
            assert answer.status == 200
        logged = json.loads(served.stdout.readline())
        assert (logged["path"], logged["status"]) == ("/api/health", 200)
        served.send_signal(signal.SIGHUP)
        assert served.stderr.readline() == "INFO: Index reloaded: 48 images\n"
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            assert b"proxysynth_index_loads 2.0" in answer.read()
        served.send_signal(signal.SIGINT)
        _, err = served.communicate(timeout=30)
    finally:
        served.kill()
    assert "Traceback" not in err
    assert served.returncode == 0


def wait_until_refused(port: int) -> None:
    """Until the service accepts no more connections."""
    last = time.monotonic() + 30
    while time.monotonic() < last:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except ConnectionError:
            return
        time.sleep(0.02)
    pytest.fail("connections are still accepted")


def test_sigterm_lets_requests_finish(shop) -> None:
    """SIGTERM, as systemd and Docker send it, while an upload is on its way."""
    command = [sys.executable, "-m", "proxysynth", "serve", str(shop / "shop.index"), "--port", "0"]
    served = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        port = int(served.stderr.readline().split(" at http://127.0.0.1:")[1].split()[0])
        body = json.dumps({"vector": [1.0] * 16, "k": 3}).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=30).close()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            head = "POST /api/search/vector HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
            head += f"{len(body)}\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 100")  # it has read the head
            client.sendall(body[:10])
            served.send_signal(signal.SIGTERM)
            wait_until_refused(port)
            client.sendall(body[10:])
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        served.communicate(timeout=30)
    finally:
        served.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")
def test_unread_logs_do_not_block_the_service(shop) -> None:
    import fcntl

    command = [sys.executable, "-m", "proxysynth", "serve", str(shop / "shop.index"), "--port", "0",
               "--access-log", "-"]  # fmt: skip
    pipe = subprocess.PIPE
    served = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))
    try:
        for stream in (served.stdout, served.stderr):
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 4096)
        port = int(served.stderr.readline().split(" at http://127.0.0.1:")[1].split()[0])
        for _ in range(120):  # each a line on standard error
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(b"nonsense\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 400")
        for _ in range(60):  # each a line on standard output
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=20).close()
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 0
    finally:
        served.kill()


def test_searches_are_reranked_on_request(capsys, shop, monkeypatch) -> None:
    from fastapi.testclient import TestClient

    from proxysynth.web import create_app, server

    file, method = str(shop / "shop.index"), "query_expansion:k=4,alpha=0"
    served = []
    monkeypatch.setattr(server, "serve", lambda index, *_, **__: served.append(index))
    with pytest.raises(SystemExit) as end:
        main(["serve", file, "--port", "0", "--rerank", method])
    assert end.value.code == 0
    index = served[0]
    for number in (0, 9, 20):
        vector = index.vectors(number, number + 1)
        expected = index.search_vectors(vector, 12, exclude=[number], rerank=method)[0]
        with TestClient(create_app(index), base_url="http://localhost:8000") as client:
            found = client.get(f"/api/items/{number}/search?k=12").json()["hits"]
        assert [hit["number"] for hit in found] == [hit.number for hit in expected]
        similarities = [hit["similarity"] for hit in found]
        assert similarities == pytest.approx([hit.similarity for hit in expected], abs=1e-6)
    capsys.readouterr()
    code, err = ended(capsys, "serve", file, "--rerank", "query_expansionn")
    assert code == 2
    assert "query_expansionn" in err


def test_json_and_access_log_on_stdout_are_rejected_together(capsys, shop) -> None:
    code, err = ended(capsys, "serve", str(shop / "shop.index"), "--access-log", "-", "--json")
    assert code == 2
    assert "--access-log" in err


@pytest.mark.parametrize("prefix", ["shop", "/a b", "/a//b", "/<x>"])
def test_invalid_root_path_is_rejected(capsys, shop, prefix) -> None:
    argv = ("serve", str(shop / "shop.index"), "--port", "0", "--root-path", prefix)
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "root_path" in capsys.readouterr().err
