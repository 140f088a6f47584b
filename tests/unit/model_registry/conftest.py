"""A registry on the in-process bus and a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.model_registry.registry_hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)
