"""Transfers that a test kills with their process: that process loads what is here, and nothing else of the tests."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import UploadState, UploadStep
from hanse_fabric.store.transfer import Came, HttpTransfer


def fetching(transfer: HttpTransfer, ref: ObjectRef, url: str) -> Callable[[Path, Came], Any]:
    async def download(path: Path, came: Came) -> None:
        if came.bytes < ref.size:
            await asyncio.to_thread(transfer.fetch, url, path, limit=ref.size, came=came)

    return download


def asking(folder: Path) -> Callable[[UploadStep], Any]:
    """Asks the hub, which is in another process, by files."""

    async def ask(step: UploadStep) -> UploadState:
        name = secrets.token_hex(6)
        (folder / f"{name}.new").write_text(step.model_dump_json())
        (folder / f"{name}.new").replace(folder / f"{name}.ask")
        answer = folder / f"{name}.answer"
        while not answer.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        said = json.loads(answer.read_text())
        return UploadState.model_validate(said)

    return ask
