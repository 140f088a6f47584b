"""Simulated sites and services are threads of one process, and write all that true ones write: to memory."""

from __future__ import annotations

from typing import Any

import pytest

from memory_disk import tmp_path, tmp_path_factory
from simulation.wards import Wards

__all__ = ["tmp_path", "tmp_path_factory"]


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Wards:
    return Wards.written(tmp_path_factory.mktemp("wards"))


@pytest.fixture
def there(wards: Wards) -> dict[str, Any]:
    """How the league of the wards is made."""
    return {"worker": wards.worker, "schema": wards.schema}
