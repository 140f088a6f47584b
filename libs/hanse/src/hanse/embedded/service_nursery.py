"""The services of an embedded hub from one process that has loaded their modules once.

`python -m hanse.embedded.service_nursery MODULE...` loads these and forks what `python -m` would start. With
`--at SOCKET` it serves several hubs one after the other or side by side, each over a connection of its own.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from hanse_fabric import forking


def main() -> int:
    """Serve until stdin closes, or for ever at a socket; the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", type=Path)
    parser.add_argument("modules", nargs="+")
    given = parser.parse_args()
    forking.load(given.modules)
    if given.at is not None:
        forking.serve_at(given.at, _service)
    return forking.serve(_service)


def _service(asked: forking.Order) -> int:
    os.environ.clear()
    os.environ.update(asked["environment"])
    module, *arguments = asked["argv"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
