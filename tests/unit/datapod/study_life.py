"""As one_life.py, with two steps of a study that are open at once, each of which asks for a masked answer.

Usage: study_life.py HOME [sync|before-publish|after-publish N]. Prints, by step, the bytes of the result and of the
masked arrays, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from unit.datapod.one_life import die_at
from unit.datapod.site_actors import Site
from unit.datapod.study_actors import Cohort, masked_step, study_policy


async def live(home: Path) -> None:
    site = Site(home, worker=Cohort(count=home / "computed"), policy=study_policy())
    for step in ("c0000-counts", "c0001-counts"):
        await site.give(masked_step(step))
    await site.start()
    found = {result.step: (data, await site.update_of(result)) for result, data in await site.results(2)}
    await site.stop()
    for step, (data, update) in sorted(found.items()):
        print(step, data.hex(), update.hex())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        die_at(sys.argv[2], int(sys.argv[3]))
    asyncio.run(live(Path(sys.argv[1])))
