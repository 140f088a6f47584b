"""A site whose worker runs code that wants to do harm (`hostile_site_code.py`): its home, its data, its processes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.port import Worker, WorkOutcome, WorkRequest
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import ArraySchema

HERE = Path(__file__).parent
SCHEMA = ArraySchema(shape=(2,), classes=2)
KEY = b"the site's signing key"
CODE = (HERE / "hostile_site_code.py").read_text()


class Site:
    """A site's home with its keys, its data, and its worker on code that wants to do harm."""

    def __init__(self, folder: Path, policy: SandboxPolicy) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        (self.home / "signing.pem").write_bytes(KEY)
        data = folder / "data" / "ward.npz"
        data.parent.mkdir()
        np.savez(data, x=np.ones((4, 2), np.float32), y=np.arange(4) % 2)
        self.code = folder / "mine.py"
        self.code.write_text(CODE)
        self.shared = SharedWorker(self.code, participants=1, sandbox=policy)
        self.worker: Worker = self.shared.participant(DataSettings(train=data, test=data), self.home)
        self.number = 0

    @property
    def process(self) -> WorkerProcess:
        return self.shared._training

    async def do(self, attack: str, *, memory: int | None = None, **given: Any) -> WorkOutcome:
        """Have the code play an attack as its training; the outcome."""
        self.number += 1
        code = {"name": "mine", "digest": hashlib.sha256(self.code.read_bytes()).hexdigest()}
        config = {"model": {"features": 2}, "code": code, "train": {"attack": attack, **given}}
        model = await self._model(config)
        output, state = self.home / "made" / f"run.{self.number}.update", self.home / "state" / "run"
        request = WorkRequest(TaskKind.TRAIN, config, 7, 1, model, output, state, 240.0, memory)
        return await self.worker.work(request, lambda _fraction, _text: None)

    async def said(self, attack: str, **given: Any) -> float:
        """1 where the attack succeeded, else 0, as the code tells it."""
        return (await self.do(attack, **given)).metrics["succeeded"]

    async def _model(self, config: dict[str, Any]) -> Path:
        path = self.home / "cache" / "model"
        if not path.exists():
            await self.worker.check_data(SCHEMA)
            made, state = self.home / "made" / "first", self.home / "state" / "run"
            first = WorkRequest(TaskKind.INITIALIZE, config, 7, 0, None, made, state, 240.0)
            await self.worker.work(first, lambda _fraction, _text: None)
            made.rename(path)
        return path
