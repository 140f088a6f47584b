"""One of several processes that train together: gets the request from the worker's process, and answers there.

Started by `worker.ranks.launch` only, with the path of its socket.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from hanse_datapod.worker.frames import pack, read_frame
from hanse_datapod.worker.sandbox.kernel import die_with_parent
from hanse_datapod.worker.server.answering import Send, answer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.site.ranks import LOOPBACK, Ranks, join, withdraw


def main() -> int:
    """Do this process's part; 0 where it went well. What it fails with is told before it ends."""
    die_with_parent()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(sys.argv[1])
    failed = False

    def send(told: dict[str, Any]) -> None:
        nonlocal failed
        failed = told.get("kind") == "error"
        connection.sendall(pack(told))

    send({"rank": int(os.environ["RANK"])})
    if (body := read_frame(connection.makefile("rb"))) is None:
        return 1
    answer(body, lambda given: _done(given, send), send)
    if not failed:
        withdraw()
    return int(failed)


def _done(body: dict[str, Any], send: Send) -> dict[str, Any]:
    from hanse_datapod.worker.server.training import TrainingServer, device_of

    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if not body["config"].get("code"):  # which joins the others itself, as it likes
        ranks = join(device=ranks.device(device_of(body).name))
    return TrainingServer(send, _nothing, ranks).do(body)


def _nothing() -> dict[str, Any]:
    raise HanseError(ErrorCode.INTERNAL, "one of several processes that train together waits for a sum over sites")


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of the group's would abort a process that ends by itself
