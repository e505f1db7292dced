"""The programs that the documents' commands call, made small: so that a test can run them all.

    python smaller.py proxysynth train photos --out runs/shop

Options are added after those of the document, and the last one counts. What a document can only
name (a database elsewhere, a benchmark's folder) is replaced by something of the same kind. pip
installs nothing; it fails where an extra is not one of ours. A server goes to the background.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

STANDS_FOR = {
    "cub200:DIR": "photos",
    "postgresql://user:password@host/studies": "sqlite:///studies.db",
    "/shared/cub200.log": "cub200.log",
}
NETWORK = ["dim=8", "width=0.25", "batch_size=8"]
GLYPHS = ["split.train_classes=6", "split.test_classes=5", "split.faces_per_class=6"]
SERVER_LOG = Path("server.log")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def proxysynth(argv: list[str]) -> list[str]:
    """The command with options that make it small."""
    words = [STANDS_FOR.get(word, word) for word in argv]
    data = [word for word in words[1:2] if not word.startswith("-")] or ["glyphs"]
    settings = [*NETWORK, *(GLYPHS if data == ["glyphs"] else ["image_size=32"])]
    if words[0] == "train" and any(word.startswith("my_networks:") for word in words):
        settings.remove("width=0.25")
    elif words[0] == "train" and "--resume" in words:
        words, settings = [*words, "--epochs", "2"], []
    elif words[0] == "train":
        words += ["--backbone", "conv4", "--from-scratch", "--epochs", "1"]
    elif words[0] == "mlrc":
        words += ["--scale", "smoke", "--trials", "1"]
        settings += ["epochs=1", "weights=none"]
    elif words[0] == "paper":
        words += ["--plan"] if "all" in words else ["--scale", "smoke"]
    if words[0] in ("train", "mlrc"):
        words += [word for setting in settings for word in ("--set", setting)]
    client = Path(__file__).with_name("fork_client.py")
    return [sys.executable, "-S", "-E", str(client), os.environ["FORK_SERVER"], *words]


def torchrun(argv: list[str]) -> list[str]:
    """The same launcher with two processes, around a smaller command or the document's script."""
    argv[argv.index("--nproc-per-node") + 1] = "2"
    if "proxysynth" in argv:
        at = argv.index("proxysynth") + 1
        argv[at:] = proxysynth(argv[at:])[5:]
    return [sys.executable, "-m", "torch.distributed.run", *argv]


def pip(argv: list[str]) -> list[str]:
    """Nothing is installed: every extra that is asked for has to be one that we have."""
    import importlib.metadata  # takes longer than the other programs do

    known = set(importlib.metadata.metadata("proxysynth").get_all("Provides-Extra") or ())
    asked = [re.fullmatch(r"(?:\.|proxysynth)(?:\[(.*)\])?", word) for word in argv[1:]]
    wanted = [each for each in asked if each]
    extras = {name for each in wanted for name in (each[1] or "").split(",") if name}
    if argv[0] != "install" or not wanted or extras - known:
        sys.exit(f"pip {' '.join(argv)}: not what installs proxysynth; extras: {sorted(known)}")
    return ["true"]


def serve(argv: list[str]) -> list[str]:
    """Start the server on a free port, and wait until it has one."""
    command = [sys.executable, "-m", "proxysynth", *argv, "--port", "0"]
    with SERVER_LOG.open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    while server.poll() is None and not ADDRESS.search(SERVER_LOG.read_text()):
        time.sleep(0.1)
    with urllib.request.urlopen(f"{_address()}/api/health", timeout=60) as answer:
        return ["test", str(answer.status), "-eq", "200"]


def curl(argv: list[str]) -> list[str]:
    """The same request to the port that our server has."""
    return ["curl", "--fail", *(ADDRESS.sub(_address(), word) for word in argv)]


def _address() -> str:
    log = SERVER_LOG.read_text()
    found = ADDRESS.search(log)
    return found[0] if found else sys.exit(f"the server did not start: {log}")


PROGRAMS = {"proxysynth": proxysynth, "torchrun": torchrun, "pip": pip, "curl": curl}

if __name__ == "__main__":
    program, *words = sys.argv[1:]
    make = serve if words[:1] == ["serve"] else PROGRAMS[program]
    # The folder with these programs comes first in PATH; the real ones are in the rest.
    os.environ["PATH"] = os.environ["PATH"].partition(os.pathsep)[2]
    command = make(words)
    os.execvp(command[0], command)
