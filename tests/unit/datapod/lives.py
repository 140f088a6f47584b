"""Lives of a datapod as processes, each of which may be killed at one moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]


def live(story: str, home: Path, *kill_at: object) -> subprocess.CompletedProcess[str]:
    """Run `one_life`, `masked_life` or `study_life` in the site's home; without `kill_at` to its end."""
    argv = [sys.executable, "-m", f"unit.datapod.{story}", str(home), *map(str, kill_at)]
    return subprocess.run(argv, cwd=TESTS, capture_output=True, text=True, timeout=120, check=False)
