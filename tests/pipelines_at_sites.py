"""An example of `examples/pipelines` at several sites in one process, a thread each: heavy packages are loaded once.

The command line: EXAMPLE.py URL POLICY FOLDER NAME=TOKEN ...
"""

import importlib.util
import sys
import threading
from pathlib import Path

import hanse


def main(example: str, url: str, policy: str, folder: str, *named: str) -> None:
    spec = importlib.util.spec_from_file_location("example", example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

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
