"""Examples of `examples/pipelines`, each at several sites, in one process: heavy packages are loaded once. A site is a
thread.

The command line: URL POLICY FOLDER EXAMPLE.py:NAME=TOKEN ...; a site's home is FOLDER/EXAMPLE/NAME.
"""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import hanse

_TURN = threading.Lock()


def one_by_one(module: Any) -> None:
    """Let threads make their networks one by one: torch's seed is the process's, and two that draw from it at once get
    other base models than the example's seed says. A site of its own process needs no such care."""
    network = getattr(module, "network", None)

    def made(*arguments: int) -> object:
        with _TURN:
            return network(*arguments)

    if network is not None:
        module.network = made


def loaded(example: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(example).stem, example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one_by_one(module)
    return module


def main(url: str, policy: str, folder: str, *named: str) -> None:
    sites: dict[str, list[tuple[str, str]]] = {}
    for each in named:
        example, _, site = each.partition(":")
        name, _, token = site.partition("=")
        sites.setdefault(example, []).append((name, token))

    def at(module: Any, home: Path, token: str, part: int, parts: int) -> None:
        with hanse.join(url, token, home=home, policy=policy, examples=100) as site:
            module.take_part(site, part, parts)

    threads = []
    for example, joining in sites.items():
        module, homes = loaded(example), Path(folder) / Path(example).stem
        for part, (name, token) in enumerate(joining):
            arguments = (module, homes / name, token, part, len(joining))
            threads.append(threading.Thread(target=at, args=arguments, name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
