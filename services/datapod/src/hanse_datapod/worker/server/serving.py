"""The working process of a worker: it goes into its sandbox, loads its libraries, and answers requests."""

from __future__ import annotations

import os
import queue
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


def serve(told: dict[str, Any], incoming: BinaryIO, outgoing: BinaryIO, *, studies: bool, alone: bool) -> None:
    """Serve requests until the agent closes the pipe.

    Args:
        told: the first frame: what it may reach.
        studies: whether it computes on genotypes; else it trains.
        alone: whether this process is in namespaces of its own.
    """
    confinement = enter(Reach.told(told["reach"]), Path(told["scratch"]), alone=alone)
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests), daemon=True).start()

    def send(body: dict[str, Any]) -> None:
        outgoing.write(pack(body))
        outgoing.flush()

    do = _studies(send) if studies else _training(send, requests.get)  # libraries are loaded while the agent joins
    garbage.settle()
    send({"kind": "ready", "confinement": asdict(confinement)})
    while True:
        answer(requests.get(), do, send)


def _listen(stream: BinaryIO, requests: Requests) -> None:
    """Queue requests. The end of the stream means that the agent is gone: nothing here is worth finishing then."""
    while (body := read_frame(stream)) is not None:
        requests.put(body)
    os._exit(0)


def _studies(send: Send) -> Do:
    from hanse_datapod.worker.server.studies import StudyServer

    return StudyServer(send).do


def _training(send: Send, receive: Receive) -> Do:
    from hanse_datapod.worker.server.training import TrainingServer

    return TrainingServer(send, receive).do
