"""Has one command run by `fork_server.py`; ends with its exit status."""

from __future__ import annotations

import array
import json
import os
import socket
import sys


def run(address: str, argv: list[str]) -> int:
    request = {"argv": argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    body = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        files = array.array("i", [0, 1, 2])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        connection.sendmsg([f"{len(body):8d}".encode()], rights)
        connection.sendall(body)
        return (connection.recv(1) or b"\1")[0]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
