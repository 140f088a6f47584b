"""The hub of the workflow tests, and the folder of its helpers on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from workflow_hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)
