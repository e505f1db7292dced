"""Runs `proxysynth` commands in forks of a process that has imported torch already.

    python fork_server.py SOCKET                    the server
    python -S fork_client.py SOCKET train glyphs    one command, with the client's files and folder

Importing torch takes longer than most commands of the documents.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys
import traceback


def serve(address: str) -> None:
    import proxysynth.cli.eval
    import proxysynth.cli.index
    import proxysynth.cli.paper
    import proxysynth.cli.search
    import proxysynth.cli.train  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                server.close()
                os._exit(_run(connection))
            connection.close()


def _run(connection: socket.socket) -> int:
    from proxysynth.cli import main

    size = array.array("i", [0]).itemsize
    header, extra, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * size))
    files = array.array("i")
    files.frombytes(extra[0][2][: 3 * size])
    for target, file in enumerate(files):
        os.dup2(file, target)
    with connection.makefile("rb") as stream:
        request = json.loads(stream.read(int(header)))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["proxysynth", *request["argv"]]
    status = 1
    try:
        main(request["argv"])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([status]))
    return status


if __name__ == "__main__":
    serve(sys.argv[1])
