"""`python -m hanse_compensator`: one replica of the compensator, set up by HANSE_* variables.

`python -m hanse_compensator key` prints the public key of HANSE_COMPENSATOR_KEY, making the key where there is none.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import sys
from pathlib import Path

from hanse_compensator.settings import CompensatorSettings
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.service import Service, service_main

log = logging.getLogger(__name__)


async def main(service: Service[CompensatorSettings]) -> None:
    """Work the queue until told to stop."""
    from hanse_compensator.members import Limits
    from hanse_compensator.own_memory import OwnMemory
    from hanse_compensator.service import Compensator, announce

    settings = service.settings
    memory = settings.compensator_memory or settings.compensator_key.with_suffix(".memory")
    key = await asyncio.to_thread(SealingKey.load_or_create, settings.compensator_key)
    await announce(service.bus, settings.compensator_name, key, service.clock)
    log.info("sites pin this key", extra={"public_key": base64.b64encode(key.public_bytes).decode()})
    limits = Limits(
        minimum=settings.compensator_minimum,
        members=settings.compensator_members,
        nbytes=settings.compensator_mask_mib << 20,
    )
    own = await asyncio.to_thread(OwnMemory, memory, settings.compensator_memory_mib << 20)
    compensator = Compensator(
        service.bus, service.store, key, limits=limits, own=own,
        jobs=settings.compensator_jobs, clock=service.clock,
    )  # fmt: skip
    service.set_ready()
    await compensator.run(service.stopping)


def _print_key() -> None:
    named = os.environ.get("HANSE_COMPENSATOR_KEY")
    if not named:
        sys.exit("HANSE_COMPENSATOR_KEY: the path of the key file must be set")
    try:
        print(base64.b64encode(SealingKey.load_or_create(Path(named)).public_bytes).decode())
    except HanseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if sys.argv[1:] == ["key"]:
        _print_key()
    else:
        service_main("compensator", CompensatorSettings, main)
