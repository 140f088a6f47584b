"""Several sites of one machine from one process that has loaded torch once: for demonstrations on small machines.

`python -m hanse_datapod.process.nursery` loads what a datapod and its worker need and forks sites (`forking`), each of
which forks its worker before it does anything else. Both are processes of their own, as they would be without it. The
nursery itself reads nothing of a site's data and keys. With `--at SOCKET` it serves several deployments one after the
other or side by side, each over a connection of its own. Modules that are named are loaded, too, which sites else load
when they need them.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from hanse_fabric import forking

_NEEDED = ("hanse_datapod.process.service", "hanse_datapod.worker.server.training", "hanse_fabric.bus.nats")


def main() -> int:
    """Serve until stdin closes, or for ever at a socket; the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", type=Path)
    parser.add_argument("modules", nargs="*")
    given = parser.parse_args()
    forking.load((*_NEEDED, *given.modules))
    if given.at is not None:
        forking.serve_at(given.at, _site)
    return forking.serve(_site)


def _site(asked: forking.Order) -> int:
    _fork_worker()  # which shall not have the agent's settings
    os.environ.clear()
    os.environ.update(asked["environment"])
    from hanse_datapod.cli import main as datapod

    return datapod(asked["argv"][1:])


def _fork_worker() -> None:
    """Begin the site's worker while this process has one thread and nothing of the site."""
    from hanse_datapod.worker.client.adopted import Forked, prepare

    questions, asking = os.pipe()
    answering, answers = os.pipe()
    pid = os.fork()
    if pid:
        os.close(questions)
        os.close(answers)
        prepare(Forked(pid, asking, answering))
        return
    try:
        os.dup2(questions, 0)
        os.dup2(answers, 1)
        for descriptor in (questions, asking, answering, answers):
            os.close(descriptor)
        # Site code may run in it.
        for name in [name for name in os.environ if name.startswith("HANSE_")]:
            del os.environ[name]
        sys.argv = ["hanse_datapod.worker"]
        from hanse_datapod.worker.__main__ import main as worker

        worker()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
