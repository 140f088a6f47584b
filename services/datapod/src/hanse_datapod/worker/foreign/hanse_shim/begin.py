"""The first file that the foreign interpreter runs: `python begin.py KIND`. It finds the others, and they begin."""

import sys
from pathlib import Path

if __name__ == "__main__":
    _here = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, _here)
    from hanse_shim import carrier  # type: ignore[import-not-found, unused-ignore]

    carrier.loaded(sys.argv[1])
    sys.path.remove(_here)
    carrier.serve(sys.argv[1])
