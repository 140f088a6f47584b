"""What all attacks share: `attacked` is a stage with four cautious sites, a compensator, and a hub that lies.

An attack is a test; its control is the same attack with the one defence taken away by the test (`monkeypatch`), never
by a setting, and it must succeed; `test_promises.py` lists those that take it away otherwise, and why. A control says
of which attacks it is (`@pytest.mark.control("test_...")`); an attack that ends with its own has
`@pytest.mark.control_inside`; what is no attack says why (`@pytest.mark.no_attack("an honest hub")`).
`test_promises.py` demands it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adversary import ages
from adversary.code_site import Site
from adversary.lying_hub import LyingHub, lying_hub
from adversary.site_league import League
from adversary.stage import staged
from forked_workers import Nursery
from hanse_datapod.worker.client import process
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from memory_disk import Folders, folders_in_memory
from servers import NatsServer

Attacked = Callable[..., AbstractAsyncContextManager[LyingHub]]


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.TempPathFactory | Folders]:
    """Homes of sites that work in threads of this process: they sync what they write, each some dozen times at its
    start."""
    with folders_in_memory(tmp_path_factory) as folders:
        yield folders


@pytest.fixture
def attacked(nats_server: NatsServer, memory: pytest.TempPathFactory | Folders) -> Iterator[Attacked]:
    """`async with attacked(sites=5, masking={...}) as hub`: the arguments are those of `staged`."""
    folder = memory.mktemp("attacked")

    @asynccontextmanager
    async def play(**how: Any) -> AsyncIterator[LyingHub]:
        async with staged(nats_server, folder, **how) as stage, lying_hub(stage) as hub:
            yield hub

    yield play
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def wards(attacked: Attacked, tmp_path: Path) -> Any:
    """`attacked` on sites with the tables of `adversary.ages`."""
    return lambda **rules: attacked(sites=len(ages.ROWS), worker=ages.on_ages(tmp_path), schema=ages.SCHEMA, **rules)


@pytest.fixture
async def league(nats_server: NatsServer) -> AsyncIterator[League]:
    async with League(nats_server) as made:
        yield made


@pytest.fixture(scope="module")
def forked(worker_nursery: Nursery) -> Iterator[None]:
    """Workers of a file's tests begin with torch loaded, for many of the attacks end one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "take_prepared", worker_nursery.worker)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A site with the sandbox that this machine has."""
    site = Site(tmp_path_factory.mktemp("closed"), SandboxPolicy(mode="required"))
    yield site
    await site.shared.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The control: the same without a sandbox."""
    site = Site(tmp_path_factory.mktemp("opened"), SandboxPolicy(mode="none"))
    yield site
    await site.shared.close()
