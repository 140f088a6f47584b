"""The pools of devices that a site lists, and which of them a task is done in: the smallest that fits.

The datapod's own worker is one of them, `local`. The file is the site administrator's (HANSE_POOLS):

    pools:
      - {name: a100, device: gpu, count: 1, memory_gib: 40, labels: {mig: 3g.20gb}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from hanse_datapod.worker.port import DeviceReport
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.text_files import read_yaml
from hanse_schemas.resources import Resources

LOCAL = "local"


class Pool(Frozen):
    """Workers of one kind.

    Attributes:
        count: devices that one worker has.
        memory_gib: of one device, or of the worker where it is the processor; None: not told, and no job that asks
            for some fits.
        labels: that jobs may ask for.
    """

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    device: Literal["cpu", "gpu"]
    count: int = Field(default=1, ge=1, le=64)
    memory_gib: float | None = Field(default=None, gt=0)
    labels: dict[str, str] = {}

    def describe(self) -> str:
        """In a few words."""
        memory = "" if self.memory_gib is None else f", {self.memory_gib:g} GiB"
        labels = "".join(f", {name}={value}" for name, value in sorted(self.labels.items()))
        return f"{self.name} ({self.device}{memory}{labels})"


class _PoolsFile(Frozen):
    pools: tuple[Pool, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> _PoolsFile:
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1 or name == LOCAL})
        if twice:
            raise ValueError(f"pools: {', '.join(twice)}: each has a name of its own, and none is called {LOCAL}")
        return self


@dataclass(frozen=True, slots=True)
class ChosenPool:
    """Where a task is done; `warning` for the owner, where that is not what the job would rather have."""

    pool: Pool
    warning: str = ""


def read_pools(path: Path | None) -> tuple[Pool, ...]:
    """The pools of a file; none where there is no file.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT naming each field, its value and what was expected.
    """
    if path is None:
        return ()
    body = read_yaml(path, "HANSE_POOLS:")
    try:
        return _PoolsFile.model_validate(body or {}).pools
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{path}: {explain(error)}", hint="see docs/site-administrator.md, section GPUs"
        ) from None


def local_pool(report: DeviceReport) -> Pool:
    """The datapod's own worker as a pool."""
    return Pool(name=LOCAL, device=report.kind, memory_gib=report.memory_gib or None)


def choose(wanted: Resources, pools: Iterable[Pool], *, alive: Callable[[str], bool] = lambda _: True) -> ChosenPool:
    """The smallest pool that fits: processors before GPUs, less memory before more. Where no GPU is asked for, the
    datapod's own worker comes first. Among pools that fit, those with a live worker come first.

    Args:
        pools: of the site, the local one included.
        alive: whether a pool has a worker now.

    Raises:
        HanseError: NO_DEVICE saying what the site has.
    """
    listed = sorted(pools, key=_size if wanted.wants_gpu else _at_home)
    fits = [pool for pool in listed if _fits(wanted, pool)]
    if wanted.device == "prefer-gpu":
        return _preferred(wanted, listed, alive)
    if wanted.device == "cpu" and not fits:
        # A worker with a GPU has a processor, too.
        fits = [pool for pool in listed if pool.name == LOCAL and not wanted.labels and wanted.memory_gib is None]
    if not fits:
        raise HanseError(
            ErrorCode.NO_DEVICE,
            f"train.resources: {_asked(wanted)} is asked for; this site has "
            + "; ".join(pool.describe() for pool in listed),
            hint="ask for less, or for prefer-gpu, which falls back to the processor",
        )
    return ChosenPool(next((pool for pool in fits if alive(pool.name)), fits[0]))


def _preferred(wanted: Resources, listed: list[Pool], alive: Callable[[str], bool]) -> ChosenPool:
    gpus = [pool for pool in listed if pool.device == "gpu" and _fits(wanted, pool)]
    ready = next((pool for pool in gpus if alive(pool.name)), None)
    if ready is not None:
        return ChosenPool(ready)
    # Memory and labels were asked of a GPU; on a processor they do not matter, so any pool will do.
    others = [pool for pool in listed if pool.device == "cpu"] or [pool for pool in listed if pool.name == LOCAL]
    why = f"no worker of {', '.join(pool.name for pool in gpus)} is at work" if gpus else "no GPU here fits"
    back = next((pool for pool in others if alive(pool.name)), others[0])
    return ChosenPool(back, f"train.resources: {_asked(wanted)} is asked for, but {why}: the processor is used")


def _fits(wanted: Resources, pool: Pool) -> bool:
    if wanted.device in ("cpu", "gpu") and pool.device != wanted.device:
        return False
    if wanted.memory_gib is not None and (pool.memory_gib is None or pool.memory_gib < wanted.memory_gib):
        return False
    return wanted.labels.items() <= pool.labels.items()


def _size(pool: Pool) -> tuple[bool, float, int, str]:
    return (pool.device == "gpu", pool.memory_gib or 0.0, pool.count, pool.name)


def _at_home(pool: Pool) -> tuple[bool, bool, float, int, str]:
    return (pool.name != LOCAL, *_size(pool))


def _asked(wanted: Resources) -> str:
    memory = "" if wanted.memory_gib is None else f" with {wanted.memory_gib:g} GiB"
    labels = "".join(f", {name}={value}" for name, value in sorted(wanted.labels.items()))
    return f"device {wanted.device}{memory}{labels}"
