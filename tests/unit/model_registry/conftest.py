"""A registry on the in-process bus and a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_disk import tmp_path, tmp_path_factory
from unit.model_registry.registry_hub import Hub

__all__ = ["tmp_path", "tmp_path_factory"]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)
