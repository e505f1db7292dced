"""Behind a real nginx, configured as docs/deploy.md shows: TLS, a prefix, a host name."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from web.serving import serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
NAME = "shop.localhost"  # resolves to loopback in browsers, and is not a name we answer to


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def service(shop):
    """The port of a service under /shop that answers to NAME."""
    pytest.importorskip("uvicorn")
    from proxysynth.search import Index
    from proxysynth.web import create_app

    index = Index.open(shop / "shop.index")
    with serving(create_app(index, root_path="/shop", allow_hosts=[NAME])) as port:
        yield port


@pytest.fixture(scope="module", params=["prefix passed on", "prefix removed"])
def proxy(request, service, tmp_path_factory):
    """The address of nginx with the documented configuration, on loopback."""
    if NGINX is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", f"/CN={NAME}", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    (block,) = re.findall(r"```nginx\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    slash = "/" if request.param == "prefix removed" else ""
    for text, other in {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "shop.example.org;": f"{NAME};",
        "/etc/ssl/shop.example.org.crt": str(certificate),
        "/etc/ssl/private/shop.example.org.key": str(key),
        "http://127.0.0.1:8000;": f"http://127.0.0.1:{service}{slash};",
    }.items():
        assert block.count(text) == 1, text
        block = block.replace(text, other)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off;\n{user}\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{block}}}\n"
    )
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    server = subprocess.Popen(command, stderr=subprocess.PIPE)
    for _ in range(200):
        assert server.poll() is None, server.stderr.read().decode()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"https://{NAME}:{port}"
    server.terminate()
    server.wait(10)


def status(address: str, method: str = "GET") -> int:
    """Of a request to NAME, whatever this machine's resolver says about it."""
    host = address.split("/")[2]
    request = urllib.request.Request(
        address.replace(NAME, "127.0.0.1"), headers={"Host": host}, method=method
    )
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_reverse_proxy_routes(proxy) -> None:
    assert status(f"{proxy}/shop/") == 200
    assert status(f"{proxy}/shop/", "HEAD") == 200
    assert status(f"{proxy}/shop/api/health") == 200
    assert status(f"{proxy}/shop/metrics") == 403
    assert status(f"{proxy}/elsewhere") == 404


def test_page_works_behind_a_reverse_proxy(proxy, browser, shop) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    complaints, asked = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type == "error" else 0
    )
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda answer: complaints.append(answer.url) if answer.status > 399 else 0)
    page.goto(f"{proxy}/shop")  # the slash is added
    assert page.url == f"{proxy}/shop/"
    page.locator("#results .card").first.wait_for()
    page.set_input_files("#file", shop / "pictures" / "cup" / "0.png")
    page.locator("#results .closeness").first.wait_for()
    page.locator("#results .card").nth(1).click()
    page.wait_for_url("**/shop/#item/**")
    page.locator("#tab-map").click()
    page.get_by_text("48 images; ").wait_for()
    page.locator("#tab-report").click()
    page.frame_locator("#report-frame").locator("h1").first.wait_for()
    context.close()
    assert complaints == []
    outside = [url for url in asked if not url.startswith((f"{proxy}/shop", "blob:", "data:"))]
    assert outside == []
