"""What is killed here starts as in a container: each time a program of its own, which orders what it hashes anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.deployed import DeployedHub
from hanse.embedded.hub import EmbeddedHub


@pytest.fixture(autouse=True, scope="module")
def services_are_programs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedHub, "services_from", None)
        patch.setattr(DeployedHub, "sites_from", None)
        yield
