"""The worker's process: reads from stdin what it may reach, then requests; trains or computes on genotypes
(`--studies`), and answers on stdout. Started by `worker.client.process` only.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from hanse_datapod.worker.frames import pack, read_frame
from hanse_datapod.worker.sandbox.enter import enter
from hanse_datapod.worker.sandbox.terms import Reach
from hanse_datapod.worker.server.answering import Do, Receive, Send, answer
from hanse_fabric import garbage

Requests = queue.SimpleQueue[dict[str, Any]]


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout away from everybody else: what site code prints goes to stderr."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = open(os.devnull), sys.stderr  # noqa: SIM115, PTH123 - for the process's lifetime
    return requests, answers


def _listen(stream: BinaryIO, requests: Requests) -> None:
    """Queue requests. The end of the stream means that the agent is gone: nothing here is worth finishing then."""
    while (body := read_frame(stream)) is not None:
        requests.put(body)
    os._exit(0)


def main() -> None:
    """Serve requests until the agent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the agent's to answer
    incoming, outgoing = _own_pipes()
    if (told := read_frame(incoming)) is None:
        return
    confinement = enter(Reach.told(told["reach"]), Path(told["scratch"]))
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests), daemon=True).start()

    def send(body: dict[str, Any]) -> None:
        outgoing.write(pack(body))
        outgoing.flush()

    garbage.while_loading()
    do = _server(send, requests.get)  # libraries are loaded here, while the agent joins
    garbage.settle()
    send({"kind": "ready", "confinement": asdict(confinement)})
    while True:
        answer(requests.get(), do, send)


def _server(send: Send, receive: Receive) -> Do:
    if "--studies" in sys.argv[1:]:
        from hanse_datapod.worker.server.studies import StudyServer

        return StudyServer(send).do
    from hanse_datapod.worker.server.training import TrainingServer

    return TrainingServer(send, receive).do


if __name__ == "__main__":
    main()
