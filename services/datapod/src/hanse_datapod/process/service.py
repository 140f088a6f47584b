"""The process of `run`: one participant, or many in one process, each with its own home and its own connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hanse_datapod.data.settings import DataSettings, TableOptions
from hanse_datapod.home.one_memory import memory_of
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.process.one_ledger import require_one_ledger
from hanse_datapod.process.participant import read_policy, take_part
from hanse_datapod.settings import DatapodSettings
from hanse_datapod.window.serve import window
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.pool.choice import read_pools
from hanse_datapod.worker.port import STUDY_KINDS
from hanse_fabric import proxies
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.service import Service, run_service
from hanse_fabric.settings import load_settings

_log = logging.getLogger(__name__)


def run(homes: list[Path], options: dict[str, str]) -> int:
    """Take part until told to stop; returns the exit status.

    Args:
        homes: of several participants in this process; empty for the one of the settings.
        options: settings given on the command line; the rest comes from the environment and the file.
    """
    # A site has no credentials of a service; its own come with its identity.
    settings = load_settings(DatapodSettings, **options, bus_url="", bus_creds=None, store_url="")

    proxies.use(settings.proxy.get_secret_value())

    async def main(service: Service[DatapodSettings]) -> None:
        await _main(service, homes)

    return run_service("datapod", settings, main)


async def _main(service: Service[DatapodSettings], homes: list[Path]) -> None:
    settings = service.settings
    listed = homes or [settings.home]
    # What `load()` reads is read before any task comes, and so by code that must be approved by now.
    strict = settings.data_kind == "code"
    policy = await asyncio.to_thread(read_policy, settings.policy, settings.code, listed, strict=strict)
    await asyncio.to_thread(require_one_ledger, listed, partial(_data, settings), policy)
    if policy.masking.memory is not None:
        # Before any of them answers: what one has answered is brought to a memory where nothing is yet.
        await asyncio.to_thread(bring_answers, listed, policy.masking.memory)
    async with window(settings.window, listed, policy, settings.code, service.clock):
        await _take_part(service, policy, listed, settings.token.get_secret_value() if not homes else "")


def bring_answers(homes: Sequence[Path], memory: Path) -> None:
    """Have a memory that homes share hold all that they have answered. Blocks.

    Whoever works with one of them meanwhile, a datapod that was started before, would go on answering into the home's
    own memory, which nobody brings along any more. So all are held first, and nothing is written where one is not.

    Raises:
        HanseError: LOCKED; TAMPERED as `memory_of`.
    """
    there = [home for home in homes if home.exists()]
    with ExitStack() as held:
        for home in there:
            held.enter_context(sole_owner(home))
        for home in there:
            memory_of(home, memory)


async def _take_part(service: Service[DatapodSettings], policy: Policy, listed: list[Path], token: str) -> None:
    settings = service.settings
    shared = SharedWorker(
        settings.code, participants=len(listed), threads=settings.threads, device=settings.device,
        pools=await asyncio.to_thread(read_pools, settings.pools),
        pool_folder=settings.pool_folder or settings.home / "pools", sandbox=policy.sandbox,
        foreign=policy.site_code.foreign, scratch=settings.scratch,
        memory=None if policy.limits.memory_mib is None else policy.limits.memory_mib << 20,
    )  # fmt: skip
    workers = [shared.participant(_data(settings, home), home) for home in listed]
    await shared.start()  # libraries load while the sites join
    if any(worker.kinds is STUDY_KINDS for worker in workers):
        # Every step of a study is masked: what that takes is loaded once, not while a first study waits.
        await asyncio.to_thread(import_module, "hanse_privacy.ring.files")
    waiting = set(listed)

    def ready(home: Path) -> None:
        waiting.discard(home)
        if not waiting:
            service.set_ready()
            _log.info("ready", extra={"participants": len(listed)})

    parts = []
    for home, worker in zip(listed, workers, strict=True):
        on_ready = partial(ready, home)
        part = take_part(home, worker, policy, settings, token=token, on_ready=on_ready, clock=service.clock)
        parts.append(service.spawn(part if len(listed) == 1 else _isolated(part, home), f"participant {home}"))
    try:
        await service.stopping.wait()
    finally:
        # Agents stop before their workers: to a running agent, a stopped worker would be training that failed.
        for each in parts:
            each.cancel()
        await asyncio.wait(parts)
        await shared.close()


async def _isolated(part: Coroutine[Any, Any, None], home: Path) -> None:
    """Of several participants, one that is revoked or misconfigured leaves; the others go on."""
    try:
        await part
    except* HanseError as group:
        for error in group.exceptions:
            _log.error("a participant has ended", extra={"home": str(home), "reason": str(error)})


def _data(settings: DatapodSettings, home: Path) -> DataSettings:
    """The data of one home; `{name}` in a path is the folder's name.

    Raises:
        HanseError: INVALID_INPUT when no data are given.
    """

    def named(path: Path | None) -> Path | None:
        return None if path is None else Path(str(path).replace("{name}", home.name))

    if settings.data is None and settings.data_kind != "code":
        raise HanseError(
            ErrorCode.INVALID_INPUT, "HANSE_DATA: no data are given", hint="give --data FILE, or --data-kind code"
        )
    return DataSettings(
        train=named(settings.data),
        test=named(settings.test),
        test_fraction=settings.test_fraction,
        kind=settings.data_kind,
        phenotypes=named(settings.phenotypes),
        covariates=named(settings.covariates),
        table=TableOptions.of(settings.table),
    )
