"""A model version for asyncio; `hanse.aio` has it, and the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.calls import Call, one, path_of
from hanse.card import card_of
from hanse.files import load_model, save_model
from hanse.transport import Transport
from hanse.views import RunView
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.models import Download, ModelView, Promote
from hanse_schemas.http.reading import write

if TYPE_CHECKING:
    from hanse.trained import TrainedModel


class AsyncModel:
    """One version of a project's model."""

    def __init__(self, transport: Transport, view: ModelView) -> None:
        self._transport = transport
        self.view = view
        self._loaded: TrainedModel | None = None

    @property
    def version(self) -> int:
        return self.view.version

    @property
    def digest(self) -> str:
        return self.view.digest

    async def download(self, path: str | Path) -> Path:
        """As `hanse.hub.Model.download`."""
        found = await self._located()
        ca, patience = self._transport.ca, self._transport.patience
        return await asyncio.to_thread(save_model, found, Path(path), digest=self.digest, ca=ca, patience=patience)

    async def load(self) -> TrainedModel:
        """Fetch and verify the file, and build the model of it, to be used here; it is fetched once.

        Raises:
            HanseError: UNAVAILABLE where the packages of `hanse[torch]` are not installed; INVALID_INPUT for a model
                that cannot be built from its record.
        """
        if self._loaded is None:
            found = await self._located()
            ca, patience = self._transport.ca, self._transport.patience
            self._loaded = await asyncio.to_thread(load_model, found, digest=self.digest, ca=ca, patience=patience)
        return self._loaded

    async def to_torch(self) -> Any:
        """The `torch.nn.Module`, in evaluation mode; see `load`."""
        return (await self.load()).module

    async def predict(self, data: Any) -> Any:
        """Classes (n,), or a regression's values (n,), of a table by its columns' names or an array (n, *shape)."""
        return await asyncio.to_thread((await self.load()).predict, data)

    async def predict_proba(self, data: Any) -> Any:
        """The probability of each class, (n, classes)."""
        return await asyncio.to_thread((await self.load()).predict_proba, data)

    async def to_onnx(self, path: str | Path) -> Path:
        """Write the model as ONNX, once onnxruntime has given what torch gives; needs `hanse[onnx]`."""
        return await asyncio.to_thread((await self.load()).to_onnx, path)

    async def to_sklearn(self) -> Any:
        """The model as a fitted estimator of scikit-learn."""
        return (await self.load()).to_sklearn()

    async def card(self) -> str:
        """A model card in Markdown: what the hub knows of the version, and questions that its owners must answer."""
        path = path_of(self.view.project, "runs", self.view.lineage.run)
        try:
            run = await self._transport.send(Call("GET", path, one(RunView)))
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            return card_of(self.view, None)
        try:
            rounds = (await self._transport.send(Call("GET", f"{path}/metrics", dict)))["rounds"]
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            rounds = ()
        own: dict[str, Any] = next((item for item in rounds if item["round"] == self.view.lineage.round), {})
        return card_of(self.view, run, own.get("curves"), own.get("sites"))

    async def _located(self) -> Download:
        path = path_of(self.view.project, "models", self.version, "download")
        return await self._transport.send(Call("GET", path, one(Download)))

    async def promote(self, stage: str, *, reason: str = "") -> AsyncModel:
        """Move the version to a stage: candidate, staging, production or archived."""
        path = path_of(self.view.project, "models", self.version, "promote")
        body = write(Promote, stage=stage, reason=reason)
        self.view = await self._transport.send(Call("POST", path, one(ModelView), body))
        return self

    def __repr__(self) -> str:
        return f"<hanse model {self.view.project} v{self.version} ({self.view.stage}), {self.digest[:12]}>"
