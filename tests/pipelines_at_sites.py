"""Examples of `examples/pipelines`, each at several sites: heavy packages are loaded once, by the process from which
each example's is forked. A site is a thread of it. The first process ends when one of the examples' has ended.

The command line: URL FOLDER PARTS EXAMPLE.py:NAME=TOKEN ...; a site's home is FOLDER/EXAMPLE/NAME, and its policy
FOLDER/EXAMPLE.yaml. An example's data are cut in so many parts, of which these sites have the first ones.
"""

import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Any

import hanse
from hanse.embedded.dying import die_with_parent
from hanse.site_with_policy import _found


def one_by_one(module: Any) -> None:
    """Let threads make their networks one by one: torch's seed is the process's, and two that draw from it at once get
    other base models than the example's seed says. A site of its own process needs no such care."""
    network, turn = getattr(module, "network", None), threading.Lock()

    def made(*arguments: int) -> object:
        with turn:
            return network(*arguments)

    if network is not None:
        module.network = made


def loaded(example: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(example).stem, example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one_by_one(module)
    return module


def main(url: str, folder: str, parts: str, *named: str) -> None:
    sites: dict[str, list[tuple[str, str]]] = {}
    for each in named:
        example, _, site = each.partition(":")
        name, _, token = site.partition("=")
        sites.setdefault(example, []).append((name, token))

    def at(module: Any, home: Path, token: str, part: int) -> None:
        with hanse.join(url, token, home=home, policy=home.parent.with_suffix(".yaml"), examples=100) as site:
            module.take_part(site, part, int(parts))

    _found()  # what each of them would load
    modules = {example: loaded(example) for example in sites}
    for example, joining in sites.items():
        if os.fork():
            continue
        # A process of its own, for torch draws from one generator of the process: two examples that learn at once would
        # get other numbers than by themselves.
        die_with_parent()
        home = Path(folder) / Path(example).stem
        threads = [
            threading.Thread(target=at, args=(modules[example], home / name, token, part), name=name)
            for part, (name, token) in enumerate(joining)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
