"""Site code: a Python file with `train`, `test` and optionally `load` and `initialize`. See docs/site-code.md.

Only the worker's process loads it, from bytes whose SHA-256 equals the digest that the task names and the site's policy
has approved: what runs is what was read and compared.
"""

from __future__ import annotations

import hashlib
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.abc import InspectLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError, raised, unfit
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.examples import Examples
from hanse_learning.site.training import make_repeatable

_MAX_BYTES = 1 << 20


class _FromBytes(InspectLoader):
    """A loader of one source that was read already."""

    def __init__(self, source: bytes, path: Path) -> None:
        self._source, self._path = source, path

    def get_source(self, fullname: str) -> str:  # noqa: ARG002 - the loader's protocol
        return self._source.decode()

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002 - the loader's protocol
        return False

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002 - the loader's protocol
        return compile(self._source, str(self._path), "exec")


class Code(Protocol):
    """What the worker asks of code: of a file with these functions, or of what stands for one."""

    @property
    def path(self) -> Path: ...

    @property
    def digest(self) -> str: ...

    def has(self, name: str) -> bool: ...

    def initialize(self, config: dict[str, Any]) -> dict[str, np.ndarray]: ...

    def train(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]
    ) -> tuple[dict[str, np.ndarray], int, dict[str, float]]: ...

    def train_along(self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]) -> None: ...

    def test(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]
    ) -> tuple[int, dict[str, float]]: ...


@dataclass(frozen=True, slots=True)
class SiteCodeFile:
    """A loaded file."""

    path: Path
    digest: str
    module: ModuleType

    def train(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]
    ) -> tuple[dict[str, np.ndarray], int, dict[str, float]]:
        """Call `train`; returns arrays by name, the number of examples, metrics."""
        answer = self._call("train", model, data, config)
        if not (isinstance(answer, tuple) and len(answer) == 3):
            raise self._wrong("train", answer, "(model, number of examples, metrics)")
        trained, examples, metrics = answer
        if isinstance(trained, nn.Module):
            trained = arrays_of(trained)
        return self._arrays("train", trained), self._count("train", examples), self._metrics("train", metrics)

    def train_along(self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]) -> None:
        """Call `train` where another process tells what it returns."""
        self._call("train", model, data, config)

    def test(
        self, model: nn.Module | dict[str, np.ndarray], data: Examples, config: dict[str, Any]
    ) -> tuple[int, dict[str, float]]:
        """Call `test`; returns the number of examples and metrics."""
        answer = self._call("test", model, data, config)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise self._wrong("test", answer, "(number of examples, metrics)")
        return self._count("test", answer[0]), self._metrics("test", answer[1])

    def initialize(self, config: dict[str, Any]) -> dict[str, np.ndarray]:
        """Call `initialize`; returns arrays by name."""
        return self._arrays("initialize", self._call("initialize", config))

    def has(self, name: str) -> bool:
        """Whether the file has a function of this name."""
        return callable(getattr(self.module, name, None))

    def load(self) -> object:
        """Call `load`."""
        return self._call("load")

    def _call(self, name: str, *arguments: object) -> object:
        function: Callable[..., object] | None = getattr(self.module, name, None)
        if not callable(function):
            hint = "give the job an initial_model instead" if name == "initialize" else "see docs/site-code.md"
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"site code {self.path.name}: it has no function {name}", hint=hint
            )
        try:
            return function(*arguments)
        # Site code may raise anything; the owner is told what and where, and the worker goes on.
        except (Exception, SystemExit) as error:
            raise _raised(self.path, name, error) from error

    def _arrays(self, name: str, value: object) -> dict[str, np.ndarray]:
        if not isinstance(value, Mapping) or not all(
            isinstance(key, str) and isinstance(array, np.ndarray) for key, array in value.items()
        ):
            raise self._wrong(name, value, "a mapping of names to numpy arrays as the model")
        return {key: np.ascontiguousarray(array).reshape(array.shape) for key, array in value.items()}

    def _count(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise self._wrong(name, value, "a whole number of examples, 0 or more")
        return int(value)

    def _metrics(self, name: str, value: object) -> dict[str, float]:
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "a mapping of names to numbers as metrics")
        metrics = {}
        for key, item in value.items():
            if not isinstance(item, int | float | np.number) or not math.isfinite(float(item)):
                raise self._wrong(name, (key, item), "a finite number as each metric")
            metrics[str(key)] = float(item)
        return metrics

    def _wrong(self, name: str, value: object, expected: str) -> HanseError:
        return HanseError(
            ErrorCode.TRAINING_FAILED,
            f"site code {self.path.name}: {name}() must return {expected}",
            hint="see docs/site-code.md",
            found=repr(value)[:200],
        )


def seed_generators(seed: int) -> None:
    """Seed all generators that site code may draw from: the code chooses its own device."""
    make_repeatable(seed % 2**63)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)


def load_code(location: Path | None, wanted: Mapping[str, Any] | None = None) -> SiteCodeFile:
    """Load the site's code.

    Args:
        location: the file, or a folder with `<name>.py`.
        wanted: the task's `{name, digest}`; None: the site's own use of its file (`load()`).

    Raises:
        HanseError: NOT_FOUND without such a file; TAMPERED where its digest is another; TRAINING_FAILED where it does
            not import.
    """
    if location is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, "site code: the job asks for it, and this site has none",
            hint="mount the file and start the datapod with --code FILE",
        )  # fmt: skip
    path = location / f"{wanted['name']}.py" if location.is_dir() and wanted is not None else location
    try:
        source = path.read_bytes()
    except OSError as error:
        raise unfit(
            f"site code {path.name}: {error.strerror or type(error).__name__}", str(path), code=ErrorCode.NOT_FOUND
        ) from None
    if len(source) > _MAX_BYTES:
        raise unfit(
            f"site code {path.name}: {len(source)} bytes, at most {_MAX_BYTES} allowed", str(path),
            code=ErrorCode.TOO_LARGE,
        )  # fmt: skip
    digest = hashlib.sha256(source).hexdigest()
    if wanted is not None and digest != wanted["digest"]:
        raise unfit(
            f"site code {path.name}: its SHA-256 is {digest}, the job names {wanted['digest']}",
            str(path),
            code=ErrorCode.TAMPERED,
            hint="mount the file that the job names, and approve its digest in the policy",
        )
    loader = _FromBytes(source, path)
    spec = spec_from_loader("hanse_site_code", loader)
    if spec is None:
        raise HanseError(ErrorCode.INTERNAL, f"site code {path.name}: no module specification")
    module = module_from_spec(spec)
    module.__file__ = str(path)
    try:
        loader.exec_module(module)
    # An import may raise anything; see `_call`.
    except (Exception, SystemExit) as error:
        raise _raised(path, "import", error) from error
    return SiteCodeFile(path, digest, module)


def _raised(path: Path, name: str, error: BaseException) -> HanseError:
    traceback.print_exception(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f", line {lines[-1]}" if lines else ""
    return raised(f"site code {path.name}{where}: {name}", error)
