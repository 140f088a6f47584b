"""One life of a datapod, as a process: it is given the same open task, and killed at the n-th sync or publication.

Usage: python -m unit.datapod.one_life HOME [sync|before-publish|after-publish N]. Prints the bytes of the result and
the update, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from hanse_fabric import durable
from hanse_fabric.bus.memory import MemoryBus
from unit.datapod.site_actors import CountingWorker, Site, task


def die_at(what: str, number: int) -> None:
    """Be killed in place of the n-th sync (what was written is in the file, or lost), or before or after the n-th
    publication on the bus."""
    seen = 0

    def count(kind: str) -> None:
        nonlocal seen
        seen += kind == what
        if kind == what and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    real_sync, real_publish = durable.sync, MemoryBus.publish

    def sync(descriptor: int) -> None:
        count("sync")
        real_sync(descriptor)

    async def publish(self: MemoryBus, subject: str, data: bytes, **options: Any) -> int:
        if ".task." in subject:
            return await real_publish(self, subject, data, **options)
        count("before-publish")
        sequence = await real_publish(self, subject, data, **options)
        count("after-publish")
        return sequence

    durable.sync = sync
    MemoryBus.publish = publish  # type: ignore[method-assign]


async def live(home: Path) -> None:
    site = Site(home, worker=CountingWorker(count=home / "trained"))
    await site.start()
    await site.give(task())
    [(result, encoded)] = await site.results(1)
    update = await site.update_of(result)
    await site.stop()
    print(encoded.hex(), update.hex())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        die_at(sys.argv[2], int(sys.argv[3]))
    asyncio.run(live(Path(sys.argv[1])))
