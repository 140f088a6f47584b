"""The helpers of the end-to-end tests and of this folder on the path."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "e2e"):
    sys.path.insert(0, str(folder))
