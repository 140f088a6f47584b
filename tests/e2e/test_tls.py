"""TLS on every link and mutual TLS on the bus, with a throwaway CA: who has the certificates works, nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hanse
from certificates import ThrowawayCa
from e2e.deployed import START, completed, honest, site, start_job
from e2e.tls_hub import TlsHub, lay_certificate
from forked_services import forked_services
from hanse.embedded.nursery import NurseryKind
from hanse.hub import Project
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import Role
from hanse_fabric.tensors.file import read_tensors
from hanse_operations.servers.program import free_ports

LARGE = {"weight": np.zeros((200, 200), np.float32)}


@pytest.fixture(scope="module")
def tls_hub(services_nursery: NurseryKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsHub]:
    with forked_services(services_nursery) as services:
        hub = TlsHub(tmp_path_factory.mktemp("tls"), services)
        try:
            hub.start()
            yield hub
        finally:
            hub.stop()


@pytest.fixture(scope="module")
def project(tls_hub: TlsHub) -> Iterator[Project]:
    with tls_hub.connect() as client:
        yield client.projects.create("secret", schema={"kind": "open"})


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> ThrowawayCa:
    """An authority that nobody of this hub trusts."""
    return ThrowawayCa(tmp_path_factory.mktemp("stranger"), "stranger")


def refused(attempt: Callable[[], object], *words: str) -> HanseError:
    with pytest.raises(HanseError) as caught:
        attempt()
    for word in words:
        assert word in str(caught.value).lower(), str(caught.value)
    return caught.value


@pytest.mark.parametrize("start", [START, LARGE], ids=["on the bus", "through the store"])
def test_sites_with_certificates_train_over_tls_alone(
    tls_hub: TlsHub, project: Project, tmp_path: Path, start: dict[str, np.ndarray], request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        for name in ("north", "south"):
            own = f"{name}-{'large' if start is LARGE else 'small'}"
            lay_certificate(tmp_path / own, tls_hub.ca.issue(own))
            stack.enter_context(site(project, own, tmp_path, honest(), ca=tls_hub.ca.cert))
        run = completed(project.run(start_job(project, start)))
    _, arrays = read_tensors(run.model.download(tmp_path / "model.safetensors"))
    assert all(np.all(array == 1.0) for array in arrays.values())
    for name in run.model.view.lineage.participants:
        project.revoke(name)


def test_a_site_without_a_certificate_enrols_and_is_refused_by_the_bus(
    tls_hub: TlsHub, project: Project, tmp_path: Path
) -> None:
    token, home = project.invite("bare"), tmp_path / "bare"
    refused(lambda: hanse.join(tls_hub.url, token, home=home, ca=tls_hub.ca.cert), "certificate")
    # The administrator puts the certificate there, and the same home goes on.
    lay_certificate(home, tls_hub.ca.issue("bare"))
    with hanse.join(tls_hub.url, home=home, ca=tls_hub.ca.cert) as joined:
        assert joined.identity.participant == "bare"


def test_a_certificate_of_another_authority_is_refused_by_the_bus(
    tls_hub: TlsHub, project: Project, stranger: ThrowawayCa, tmp_path: Path
) -> None:
    home = lay_certificate(tmp_path / "odd", stranger.issue("odd"))
    refused(lambda: hanse.join(tls_hub.url, project.invite("odd"), home=home, ca=tls_hub.ca.cert), "certificate")


def test_a_service_without_a_certificate_is_refused_by_the_bus(tls_hub: TlsHub) -> None:
    creds = tls_hub.authority.service_credentials(Role.COORDINATOR)
    attempt = NatsBus.connect(tls_hub.bus_url, "coordinator", creds=creds, ca=tls_hub.ca.cert, timeout=3)
    refused(lambda: asyncio.run(_discard(attempt)), "certificate")


@pytest.mark.parametrize("ca", ["of a stranger", "of the system"])
def test_a_wrong_authority_is_refused_by_every_client_in_clear_words(
    tls_hub: TlsHub, project: Project, stranger: ThrowawayCa, tmp_path: Path, ca: str
) -> None:
    wrong = stranger.cert if ca == "of a stranger" else None
    with hanse.connect(tls_hub.url, api_key=tls_hub.api_key, ca=wrong, patience=1.0) as client:
        assert refused(client.info, "certificate").hint
    token = project.invite("wary" if wrong else "warier")
    assert "--ca" in refused(lambda: hanse.join(tls_hub.url, token, home=tmp_path / "s", ca=wrong), "certificate").hint
    creds = tls_hub.authority.service_credentials(Role.COORDINATOR)
    pair = tls_hub.client_pair
    attempt = NatsBus.connect(
        tls_hub.bus_url, "coordinator", creds=creds, ca=wrong, cert=pair.cert, key=pair.key, timeout=3
    )
    refused(lambda: asyncio.run(_discard(attempt)), "certificate")
    if wrong is not None:
        refused(lambda: tls_hub.store(wrong).exists("models/any"), "certificate")


def test_a_missing_or_invalid_ca_file_is_named(tls_hub: TlsHub, project: Project, tmp_path: Path) -> None:
    absent, text = tmp_path / "absent.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    for path in (absent, text):
        token = project.invite("careless")
        refusal = refused(partial(hanse.join, tls_hub.url, token, home=tmp_path / "c", ca=path), path.name)
        assert refusal.code is ErrorCode.INVALID_INPUT


def test_a_service_with_a_wrong_authority_says_so_in_its_log(tls_hub: TlsHub, stranger: ThrowawayCa) -> None:
    environment = tls_hub.environment(Role.AGGREGATOR, free_ports(1)[0]) | {"HANSE_BUS_CA": str(stranger.cert)}
    before = len(tls_hub.log())
    process = tls_hub.start_service("hanse_aggregator", environment)
    try:
        while process.poll() is None and "certificate" not in tls_hub.log()[before:].lower():
            time.sleep(0.05)
        assert "certificate" in tls_hub.log()[before:].lower()
    finally:
        process.kill()
        process.wait(60)


async def _discard(connecting: object) -> None:
    bus = await connecting  # type: ignore[misc]
    await bus.close()
