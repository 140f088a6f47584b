"""`python -m hanse_compensator`: one replica of the compensator, set up by HANSE_* variables.

`python -m hanse_compensator key` prints the public key of HANSE_COMPENSATOR_KEY, making the key where there is none;
`python -m hanse_compensator identity` that of HANSE_COMPENSATOR_IDENTITY, which sites pin where several share masks.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_compensator.settings import CompensatorSettings
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.service import Service, service_main
from hanse_fabric.waiting import first_of

if TYPE_CHECKING:
    from hanse_compensator.members import SetLimits

log = logging.getLogger(__name__)


async def main(service: Service[CompensatorSettings]) -> None:
    """Work the queue, or answer as one of several, until told to stop."""
    from hanse_compensator.members import SetLimits

    settings = service.settings
    limits = SetLimits(
        minimum=settings.compensator_minimum,
        members=settings.compensator_members,
        nbytes=settings.compensator_mask_mib << 20,
    )
    if settings.compensator_identity is not None:
        await _as_one_of_several(service, settings.compensator_identity, limits)
    elif settings.compensator_key is not None:
        await _alone(service, settings.compensator_key, limits)


async def _alone(service: Service[CompensatorSettings], path: Path, limits: SetLimits) -> None:
    from hanse_compensator.own_memory import OwnMemory
    from hanse_compensator.service import Compensator, announce

    settings = service.settings
    memory = settings.compensator_memory or path.with_suffix(".memory")
    key = await asyncio.to_thread(SealingKey.load_or_create, path)
    await announce(service.bus, settings.compensator_name, key.public_bytes, service.clock)
    log.info("sites pin this key", extra={"public_key": base64.b64encode(key.public_bytes).decode()})
    own = await asyncio.to_thread(OwnMemory, memory, settings.compensator_memory_mib << 20)
    compensator = Compensator(
        service.bus, service.store, key, limits=limits, own=own,
        jobs=settings.compensator_jobs, clock=service.clock,
    )  # fmt: skip
    service.set_ready()
    await compensator.run(service.stopping)


async def _as_one_of_several(service: Service[CompensatorSettings], path: Path, limits: SetLimits) -> None:
    from hanse_compensator.own_memory import OwnMemory
    from hanse_compensator.rotating_keys import RotatingKeys
    from hanse_compensator.service import announce
    from hanse_compensator.shared_sums import SharedSums

    settings, clock = service.settings, service.clock
    owner = await asyncio.to_thread(SigningKey.load_or_create, path)
    memory = settings.compensator_memory or path.with_suffix(".memory")
    own = await asyncio.to_thread(OwnMemory, memory, settings.compensator_memory_mib << 20)
    used, kept = (timedelta(hours=h) for h in (settings.compensator_key_hours, settings.compensator_kept_hours))
    folder = settings.compensator_keys or path.with_suffix(".keys")
    keys = await asyncio.to_thread(RotatingKeys, folder, owner, used=used, kept=kept)

    async def renew() -> None:
        present = await asyncio.to_thread(keys.present, clock.now())
        await announce(service.bus, settings.compensator_name, present.key, clock, present)

    async def renewing() -> None:
        # Half of a key's time is left when the next one is made: some failures in a row do no harm.
        while not service.stopping.is_set():
            await first_of(service.stopping.wait(), clock.sleep(used.total_seconds() / 16))
            try:
                await renew()
            except HanseError as error:
                log.warning("the sealing key is not renewed: %s", error)

    await renew()
    log.info("sites pin this identity", extra={"public_key": base64.b64encode(owner.public_bytes).decode()})
    service.spawn(renewing(), "keys")
    service.set_ready()
    sums = SharedSums(
        service.bus, service.store, owner, keys, own, limits=limits, clock=clock, at_once=settings.compensator_jobs + 1
    )
    await sums.run(service.stopping)


def _print_key(variable: str, kind: type[SealingKey] | type[SigningKey]) -> None:
    named = os.environ.get(variable)
    if not named:
        sys.exit(f"{variable}: the path of the key file must be set")
    try:
        print(base64.b64encode(kind.load_or_create(Path(named)).public_bytes).decode())
    except HanseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if sys.argv[1:] == ["key"]:
        _print_key("HANSE_COMPENSATOR_KEY", SealingKey)
    elif sys.argv[1:] == ["identity"]:
        _print_key("HANSE_COMPENSATOR_IDENTITY", SigningKey)
    else:
        service_main("compensator", CompensatorSettings, main)
