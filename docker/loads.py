"""Loads every module of an image's own package, and what else it says it loads: nothing that they need was taken away.

What that has loaded is compiled, and no more: bytecode of all of torch or SymPy would be a tenth of an image, and no
service would ever read it. Runs in the build stage with the environment's own Python: `python loads.py IMAGE DECLARED`.
"""

from __future__ import annotations

import importlib
import pkgutil
import py_compile
import sys
import tomllib
from pathlib import Path


def main(image: str, declared: Path) -> int:
    """See the module; a module that is missing is told by its ImportError."""
    sys.dont_write_bytecode = True
    section = tomllib.loads(declared.read_text())[image]
    for name in (section["module"], *section.get("loads", ())):
        package = importlib.import_module(name)
        if not name.startswith("hanse"):
            continue
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and file.startswith(sys.prefix):
            py_compile.compile(file, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
