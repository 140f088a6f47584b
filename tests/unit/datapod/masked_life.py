"""As one_life.py, with a task that asks for a masked answer: killed at the n-th sync or publication, or (`masked 1`)
when the masked file is written and nothing of it is in the journal yet.

Usage: masked_life.py HOME [sync|before-publish|after-publish|masked N]. Prints the bytes of the result, the masked
update and the tally, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.masking import answer as masked_answers
from hanse_fabric.subjects import UPDATE
from unit.datapod.masked_actors import TensorWorker, masked_task, policy
from unit.datapod.one_life import die_at
from unit.datapod.site_actors import Site


def die_masked() -> None:
    def killed(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(masked_answers, "reference_to", killed)  # noqa: B010 - what it imports is replaced there


async def live(home: Path) -> None:
    worker = TensorWorker({"weight": np.linspace(-1, 1, 40, dtype="<f4")}, count=home / "trained")
    site = Site(home, worker=worker, policy=policy())
    await site.start()
    await site.give(masked_task())
    [(result, encoded)] = await site.results(1)
    update = await site.update_of(result)
    assert result.tally is not None
    subject = UPDATE.of(project="triage", run=result.run, participant="north", digest=result.tally.digest)
    tally = await site.hub.last(UPDATE.stream, subject)
    assert tally is not None
    await site.stop()
    print(encoded.hex(), update.hex(), tally.data.hex())


if __name__ == "__main__":
    if sys.argv[2:3] == ["masked"]:
        die_masked()
    elif len(sys.argv) > 2:
        die_at(sys.argv[2], int(sys.argv[3]))
    asyncio.run(live(Path(sys.argv[1])))
