"""The load on the service: what it counts, and that it runs at a small size."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.serve_load import Request, drive


class Sometimes(BaseHTTPRequestHandler):
    """Answers rightly, but every tenth time with an error and every tenth with something else."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Sometimes.count += 1
        turn = Sometimes.count % 10
        answer = {"hits": [1] if turn else [], "generation": "b" if Sometimes.count > 20 else "a"}
        body = json.dumps(answer).encode()
        self.send_response(500 if turn == 5 else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_lost_and_wrong_answers_are_counted() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sometimes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked = [Request("/", b"x", {}, lambda answer: bool(answer["hits"]))]
    try:
        load = drive(server.server_port, asked, clients=1, seconds=0.5)
    finally:
        server.shutdown()
        server.server_close()
    assert Sometimes.count > 20
    assert load.lost == Sometimes.count // 10 + (Sometimes.count + 5) // 10
    assert 0 < load.answered <= Sometimes.count - load.lost
    assert load.changes == 1
    assert 0 < load.percentile(50) <= load.percentile(99)


def test_stopped_service_loses_every_request() -> None:
    asked = [Request("/", b"x", {}, lambda answer: True)]
    load = drive(9, asked, clients=2, seconds=0.05)
    assert load.answered == 0
    assert load.lost > 0


@pytest.mark.slow
def test_it_runs_at_a_small_size() -> None:
    pytest.importorskip("uvicorn")
    from benchmarks import serve

    rows = serve.run(quick=True)
    assert [row["clients"] for row in rows] == [1, 4, 4, 4]
    assert all(row["lost"] == 0 for row in rows)
    assert all(row["requests_per_second"] > 0 for row in rows)
    assert rows[3]["replacements"] == 2
    assert rows[3]["reached"] is True
