"""An example of `examples/pipelines` at several sites in one process, a thread each: heavy packages are loaded once.

The command line: EXAMPLE.py URL POLICY FOLDER NAME=TOKEN ...
"""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import hanse


def one_by_one(module: Any) -> None:
    """Let threads make their networks one by one: torch's seed is the process's, and two that draw from it at once get
    other base models than the example's seed says. A site of its own process needs no such care."""
    network, turn = getattr(module, "network", None), threading.Lock()

    def made(*arguments: int) -> object:
        with turn:
            return network(*arguments)

    if network is not None:
        module.network = made


def main(example: str, url: str, policy: str, folder: str, *named: str) -> None:
    spec = importlib.util.spec_from_file_location("example", example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one_by_one(module)

    def at(part: int, name: str, token: str) -> None:
        with hanse.join(url, token, home=Path(folder) / name, policy=policy, examples=100) as site:
            module.take_part(site, part, len(named))

    threads = [
        threading.Thread(target=at, args=(part, *each.split("=", 1)), name=each) for part, each in enumerate(named)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
