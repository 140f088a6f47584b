"""A machine that slept, or was paused, longer than its site's token lasts goes on, unless it was revoked meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hanse.embedded.deployment import Deployment
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.process.participant import take_part
from hanse_datapod.settings import DatapodSettings
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import TOKEN_S
from hanse_fabric.bus.jwt import credentials, read_credentials
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import SiteIdentity, enrol, link, renewal
from simulation.trainer import Trainer

LEFT_S = 3
SCHEMA = {"kind": "array", "shape": [8], "task": "regression"}


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What renews tokens has no time to do so, as on a machine that sleeps."""

    async def sleep(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(link, "keep_renewed", sleep)
    monkeypatch.setattr(renewal, "_SPARE_S", 0.0)


def shorten(deployment: Deployment, identity: SiteIdentity) -> str:
    """Give the home a token that ends in LEFT_S."""
    _, keys = read_credentials(identity.creds.read_text())
    issuer = BusAuthority(deployment.hub.state.authority)._issuer
    began = int(time.time()) - TOKEN_S + LEFT_S
    token = issuer.participant_jwt(identity.project, identity.participant, keys.public, now=began)
    identity.creds.write_text(credentials(token, keys))
    return token


@asynccontextmanager
async def taking_part(home: Path) -> AsyncIterator[tuple[asyncio.Task[None], list[float]]]:
    """The site's own code; the times at which it was connected."""
    connected: list[float] = []
    work = asyncio.create_task(
        take_part(
            home, Trainer(SYSTEM_CLOCK, 0, 0.0), Policy(), DatapodSettings(home=home), token="",
            on_ready=lambda: connected.append(time.monotonic()), clock=SYSTEM_CLOCK,
        )
    )  # fmt: skip
    try:
        yield work, connected
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@pytest.mark.usefixtures("asleep")
@pytest.mark.timeout(120)
async def test_a_site_whose_token_ended_in_its_sleep_goes_on_and_one_that_was_revoked_ends(tmp_path: Path) -> None:
    async with Deployment(tmp_path, "nap", {}, SCHEMA) as deployment:
        project, home = deployment.project, deployment.home("laptop")
        token = await asyncio.to_thread(project.invite, "laptop")
        identity = await enrol(deployment.hub.url, token, home)
        ended = shorten(deployment, identity)
        async with taking_part(home) as (work, connected), asyncio.timeout(60):
            while len(connected) < 2 and not work.done():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.1)
            assert not work.done(), work.exception()
            assert read_credentials(identity.creds.read_text())[0] != ended
        await asyncio.to_thread(project.revoke, "laptop")
        shorten(deployment, identity)
        async with taking_part(home) as (work, _), asyncio.timeout(60):
            with pytest.raises((HanseError, ExceptionGroup)) as caught:
                await work
        group = caught.value if isinstance(caught.value, ExceptionGroup) else ExceptionGroup("", [caught.value])
        codes = {error.code for error in group.exceptions if isinstance(error, HanseError)}
        assert codes & {ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED}
