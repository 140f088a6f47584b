"""Whether the site's data are what the project declared: looked at once, before the first task."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from hanse_datapod.data.remark import in_words
from hanse_datapod.data.settings import Split
from hanse_datapod.home.now import Now
from hanse_datapod.worker.port import DataState, Worker
from hanse_fabric.errors import HanseError
from hanse_fabric.telemetry.catalogue import DEVICE_INFO
from hanse_schemas.schema import DataSchema

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Looked:
    """How much there is to train on.

    Attributes:
        examples: for training.
        units: `DataSummary.units`.
    """

    examples: int
    units: int | None = None


class DataCheck:
    """Holds the data against the project's schema. A site with unfit data stays up to say so.

    Attributes:
        state: of the data, as they were then.
        unfit: why the data are refused, once they are.
        remarks: what is odd about them, though they are not refused.
        looked: set when they were looked at.
    """

    def __init__(self, worker: Worker, schema: DataSchema, now: Now) -> None:
        self._worker, self._schema, self._now = worker, schema, now
        self._whole, self._keyed = Looked(0), dict[Split, Looked]()
        self._looking = asyncio.Lock()
        self.state = DataState()
        self.looked = asyncio.Event()
        self.unfit: HanseError | None = None
        self.remarks: tuple[str, ...] = ()
        self._parted = False

    async def run(self) -> None:
        """Look at the data."""
        try:
            summary = await self._worker.check_data(self._schema)
            self._whole, self._parted = Looked(summary.examples, summary.units), summary.parted
            self.state = DataState(summary.fingerprint)
            device = summary.device
            DEVICE_INFO.set(1, service="datapod", device=device.label)
            _log.info(
                "data checked",
                extra={
                    "examples": summary.examples, "test_examples": summary.test_examples, "device": device.label
                },
            )  # fmt: skip
            if summary.set_aside:
                _log.warning("bad cells are set aside, as the site tolerates", extra={"cells": summary.set_aside})
            self.remarks = in_words(summary.remarks, self._schema)
            for remark in self.remarks:
                _log.warning("the data are as declared, but odd", extra={"what": remark})
            self._now.found(
                fit=True, examples=summary.examples, test_examples=summary.test_examples, units=summary.units,
                set_aside=summary.set_aside, remarks=self.remarks, device=device.label, warning=device.warning,
                parted=summary.parted,
            )  # fmt: skip
            if device.warning:
                _log.warning("another device is used", extra={"device": device.label, "reason": device.warning})
        except HanseError as error:
            _log.error("the data are refused", extra={"code": error.code.code, "reason": error.whole})
            self.unfit = error
            self._now.found(fit=False, code=error.code.code, reason=error.whole, hint=error.hint)
        self.looked.set()

    def parted(self, split: Split) -> Split:
        """As the worker is asked for it: data that are not parted here are the same in each way."""
        return split if self._parted else "shuffled"

    async def look(self, split: Split) -> Looked:
        """How much there is where test data are set aside in this way.

        Raises:
            HanseError: `unfit`; SCHEMA_MISMATCH where one side has nothing in it.
        """
        await self.looked.wait()
        if self.unfit is not None:
            raise self.unfit
        if self.parted(split) == "shuffled":
            return self._whole
        async with self._looking:
            if split not in self._keyed:
                summary = await self._worker.check_data(self._schema, split)
                self._keyed[split] = Looked(summary.examples, summary.units)
                told = {"examples": summary.examples, "test_examples": summary.test_examples, "split": split}
                _log.info("test data are set aside for private runs", extra=told)
        return self._keyed[split]

    @property
    def there(self) -> int:
        """The number of examples, as they were then; 0 where they are refused."""
        return self._whole.examples

    @property
    def fit(self) -> bool:
        """Whether the data were looked at, and are not refused."""
        return self.looked.is_set() and self.unfit is None
