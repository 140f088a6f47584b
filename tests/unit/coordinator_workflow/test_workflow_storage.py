"""What a run leaves in the object store when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_coordinator.verbs.objects import RunObjects
from hanse_fabric.errors import HanseError
from hanse_fabric.store.directory import DirectoryStore


async def test_uploads_that_a_run_began_are_aborted_and_no_others(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    mine, other = store.open_upload("models/p/runa/r1/model"), store.open_upload("models/p/runb/r1/model")

    await RunObjects(store, "p").abort_uploads("runa")

    with pytest.raises(HanseError):
        store.put_part("models/p/runa/r1/model", mine, 1, b"late")
    store.put_part("models/p/runb/r1/model", other, 1, b"goes on")
