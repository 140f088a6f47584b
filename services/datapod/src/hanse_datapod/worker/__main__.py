"""The worker's process: reads from stdin what it is for and may reach, then requests; trains or computes on genotypes,
and answers on stdout. Started by `worker.client.process` only, whose `--studies` tells people which of the two it is.

It divides before it loads what it works with, so that its keeper is small.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO

from hanse_datapod.worker.frames import read_frame
from hanse_datapod.worker.sandbox.keeper import divide
from hanse_fabric import garbage


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


def main() -> None:
    """Serve requests until the agent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the agent's to answer
    incoming, outgoing = _own_pipes()
    if (told := read_frame(incoming)) is None:
        return
    policy = told["reach"]["policy"]
    alone = divide(wanted=policy["mode"] != "none", network=policy["network"])
    garbage.while_loading()
    from hanse_datapod.worker.server.serving import serve

    serve(told, incoming, outgoing, studies=told["studies"], alone=alone)


if __name__ == "__main__":
    main()
