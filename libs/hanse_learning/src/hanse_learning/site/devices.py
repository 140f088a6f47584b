"""The device that a site trains on: the processor, or a CUDA device where one is wanted and torch can use it.

On CUDA, training is repeatable on one kind of device and one version of torch (deterministic algorithms, cuBLAS with a
workspace of its own: `CUBLAS_WORKSPACE_CONFIG`, no TF32). Its bits are not the processor's: sums go in another order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid

CPU = "cpu"
_GIB = 1 << 30
_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"
_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was chosen.

    Attributes:
        name: torch's: `cpu`, `cuda:0`.
        label: for people, its model included.
        memory_gib: its memory; the machine's (or the container's) for the processor.
        warning: for the owner, where another one was asked for; else empty.
    """

    name: str
    label: str
    memory_gib: float
    warning: str = ""

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """What jobs ask for."""
        return "cpu" if self.name == CPU else "gpu"


def choose_device(setting: str, wanted: str = "any") -> Device:
    """The device by the site's setting and the job's wish.

    Args:
        setting: `auto`, `cpu`, `cuda` or `cuda:N` (HANSE_DEVICE).
        wanted: `any`, `cpu`, `gpu` or `prefer-gpu` (`train.resources.device`).

    Returns:
        The processor, with a warning, where a GPU was asked for by either and cannot be used.

    Raises:
        HanseError: NO_DEVICE where the job takes nothing but a GPU; INVALID_INPUT for another setting.
    """
    if setting != "auto" and setting != CPU and setting.partition(":")[0] != "cuda":
        raise invalid("HANSE_DEVICE", setting, "auto, cpu, cuda or cuda:N")
    if wanted == "cpu" or (setting == CPU and wanted == "any"):
        return _processor("")
    reason = "HANSE_DEVICE is cpu at this site" if setting == CPU else _unusable(setting)
    if not reason:
        return _cuda(setting)
    if wanted == "gpu":
        raise HanseError(
            ErrorCode.NO_DEVICE, f"train.resources.device: a gpu is asked for, and {reason}",
            hint="ask for prefer-gpu, which falls back to the processor, or leave this site out",
        )  # fmt: skip
    if setting == "auto" and wanted == "any":
        return _processor("")
    asked = f"HANSE_DEVICE is {setting}" if wanted == "any" else f"the job asks for {wanted}"
    return _processor(f"{asked}, but {reason}: the processor is used")


@contextmanager
def on_device(module: nn.Module, name: str) -> Iterator[None]:
    """Within it, the module's values lie on the device; afterwards they are the processor's again."""
    if name == CPU:
        yield
        return
    module.to(name)
    try:
        yield
    finally:
        module.to(CPU)


def device_of(module: nn.Module) -> torch.device:
    """Where the module's values lie."""
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device(CPU)


def _unusable(setting: str) -> str:
    """Why the CUDA device of the setting cannot be used; empty where it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    count, index = torch.cuda.device_count(), _index(setting)
    if index >= count:
        return f"torch sees {count} CUDA devices, 0 to {count - 1}"
    try:
        torch.zeros(1, device=f"cuda:{index}").add_(1).cpu()
    except RuntimeError as error:  # a device that is seen but in another process's exclusive use, or too old
        return f"cuda:{index} does not work: {str(error).splitlines()[0][:200]}"
    return ""


def _index(setting: str) -> int:
    number = setting.partition(":")[2]
    if number and not number.isdecimal():
        raise invalid("HANSE_DEVICE", setting, "auto, cpu, cuda or cuda:N")
    return int(number or 0)


def _cuda(setting: str) -> Device:
    name = f"cuda:{_index(setting)}"
    os.environ.setdefault(_WORKSPACES, ":4096:8")  # read when cuBLAS is first used
    properties = torch.cuda.get_device_properties(name)
    return Device(name, f"{name} {properties.name}", round(properties.total_memory / _GIB, 1))


def memory_of(device: torch.device) -> int:
    """Bytes that the device, or the container of the processor's, may hold."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text().strip()
    except OSError:
        limit = "max"  # not cgroup 2, or no limit
    if limit.isdecimal():
        memory = min(memory, int(limit))
    return memory


def _processor(warning: str) -> Device:
    return Device(CPU, CPU, round(memory_of(torch.device(CPU)) / _GIB, 1), warning)
