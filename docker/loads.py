"""Loads every module of an image's own package and of Hanse's that it names: nothing they need was taken away.

Runs in the build stage with the environment's own Python: `python loads.py IMAGE DECLARED`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tomllib
from pathlib import Path


def main(image: str, declared: Path) -> int:
    """See the module; a module that is missing is told by its ImportError."""
    section = tomllib.loads(declared.read_text())[image]
    for name in (section["module"], *section.get("loads", ())):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
