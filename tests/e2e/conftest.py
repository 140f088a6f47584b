"""A hub of real processes for the tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.deployed import DeployedHub
from forked_commands import Commands
from hanse.hub import Hub, Project


@pytest.fixture(scope="session", autouse=True)
def services(shared_services: None) -> None:
    """Hubs begin soon."""


@pytest.fixture(scope="session", autouse=True)
def sites(shared_sites: Path) -> Path:
    """So do the sites that a deployment forks, and all of a `DeployedHub`: at this socket (`forked_sites`)."""
    return shared_sites


@pytest.fixture(scope="session")
def commands(kept_program: Callable[[str], Path]) -> Commands:
    """Runs commands of the line."""
    return Commands(kept_program("commands"))


@pytest.fixture(scope="module")
def new_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DeployedHub]]:
    """Starts hubs, and stops them after the module's tests."""
    started: list[DeployedHub] = []

    def new(**options: int) -> DeployedHub:
        hub = DeployedHub(tmp_path_factory.mktemp("hub"), **options)
        started.append(hub)
        hub.start()
        return hub

    yield new
    for hub in started:
        hub.stop()


@pytest.fixture(scope="session")
def standing_hub(services: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedHub]:
    """The session's hub."""
    hub = DeployedHub(tmp_path_factory.mktemp("hub"))
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture(scope="module")
def hub(standing_hub: DeployedHub) -> Iterator[DeployedHub]:
    """The session's hub: tests have own projects and kill none of its services; their datapods end with them."""
    yield standing_hub
    standing_hub.end_datapods()


@pytest.fixture(scope="module")
def client(hub: DeployedHub) -> Iterator[Hub]:
    """The operator's connection."""
    with hub.client() as connected:
        yield connected


@pytest.fixture
def project(client: Hub, request: pytest.FixtureRequest) -> Project:
    """A project of the test's own, whose data only the sites know."""
    name = f"p{abs(hash(request.node.nodeid)) % 10**9}"
    return client.projects.create(name, schema={"kind": "open"})
