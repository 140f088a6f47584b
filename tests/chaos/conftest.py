"""What starts here is forked; what is killed, where bits are compared, starts again as in a container
(`restart_as_programs`)."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def services(shared_services: None) -> None:
    """Hubs begin soon."""
