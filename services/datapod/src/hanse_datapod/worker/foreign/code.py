"""Code of another framework with the functions that the worker asks of site code: `train`, `test`, `initialize`."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.foreign.hanse_shim import frames
from hanse_datapod.worker.foreign.interpreter import running
from hanse_datapod.worker.foreign.settings import DATA, TEST, FlowerSettings, ForeignSettings, NVFlareSettings
from hanse_datapod.worker.foreign.source import Source, read_source
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_learning.config.foreign_code import config_of_code
from hanse_learning.site.examples import Examples

Arrays = dict[str, np.ndarray]
_MODEL, _KEPT = "model/", "kept/"
_MOST_EXAMPLES = 2**53


@dataclass(slots=True)
class ForeignCode:
    """Approved code, and what it has kept.

    Attributes:
        kind: `flower` or `nvflare`.
        settings: the site's, for code of its kind.
        data: where the site's data lie.
        run: what tells the run at this site from others: what is loaded for it stays until its next task.
        kept: what it keeps at the site from round to round; training replaces it.
    """

    kind: str
    source: Source
    settings: FlowerSettings | NVFlareSettings
    data: DataSettings | None = None
    run: str = ""
    kept: Arrays = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Of the file or folder."""
        return self.source.path

    @property
    def digest(self) -> str:
        """As the site's policy approved it."""
        return self.source.digest

    def has(self, name: str) -> bool:
        """Whether the worker may call a function of this name."""
        return name != "initialize" or self.kind == "flower"

    def train(
        self, model: nn.Module | Arrays, data: Examples, config: dict[str, Any]
    ) -> tuple[Arrays, int, dict[str, float]]:
        """Train once: arrays by name as in `model`, the number of examples, metrics."""
        given = _arrays(model)
        said, made = self._asked("train", config, given)
        self.kept = {name[len(_KEPT) :]: array for name, array in made.items() if name.startswith(_KEPT)}
        trained = {name[len(_MODEL) :]: array for name, array in made.items() if name.startswith(_MODEL)}
        fitting = {name: _as_given(array, given.get(name)) for name, array in trained.items()}
        return fitting, self._examples(said, len(data)), self._metrics(said)

    def train_along(self, model: nn.Module | Arrays, data: Examples, config: dict[str, Any]) -> None:
        """Of several processes that would train together the first does it alone: others have nothing to do."""

    def test(self, model: nn.Module | Arrays, data: Examples, config: dict[str, Any]) -> tuple[int, dict[str, float]]:
        """Evaluate once: the number of examples and metrics."""
        said, _ = self._asked("evaluate", config, _arrays(model))
        return self._examples(said, len(data)), self._metrics(said)

    def initialize(self, config: dict[str, Any]) -> Arrays:
        """The first model, which the app tells.

        Raises:
            HanseError: INVALID_INPUT where code of its kind tells none.
        """
        if not self.has("initialize"):
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"site code {self.path.name}: code of {self.kind} makes no first model",
                hint="give the job an initial_model",
            )  # fmt: skip
        _, made = self._asked("initialize", config, {})
        return {name[len(_MODEL) :]: array for name, array in made.items() if name.startswith(_MODEL)}

    def _asked(self, operation: str, config: dict[str, Any], model: Arrays) -> frames.Frame:
        said = {
            "operation": operation, "round": config["round"], "rounds": None, "seed": config["seed"], "run": 1,
            "node": 1, "job": self.source.digest[:16], "entry": self.source.entry, "imports": self.source.imports(),
            "files": {name: base64.b64encode(text).decode() for name, text in self.source.files.items()},
            "config": config_of_code(config.get("train") or {}), **self._of_site(),
            "records": self.source.keywords("arrayrecord_key", "configrecord_key"),
            "framework": (config.get("model") or {}).get("framework", "numpy"),
        }  # fmt: skip
        said["of"] = self._of(said)
        arrays = {f"{_MODEL}{name}": array for name, array in model.items()}
        arrays |= {f"{_KEPT}{name}": array for name, array in self.kept.items()}
        answer, made = running(self.kind, self.settings.interpreter).ask(said, arrays)
        if answer.get("kind") == "done":
            return answer, made
        raise self._failed(operation, answer)

    def _of(self, said: Mapping[str, Any]) -> str:
        """What the loaded code is of: another run, site, file or setting finds it loaded anew."""
        varying = {"operation", "round", "seed", "files", "imports"}
        fixed = {name: value for name, value in said.items() if name not in varying}
        text = json.dumps([self.run, self.source.digest, str(self.settings.interpreter), fixed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _of_site(self) -> dict[str, Any]:
        named = {DATA: self.data.train if self.data else None, TEST: self.data.test if self.data else None}
        paths = {word: str(path) for word, path in named.items() if path is not None}

        def filled(value: Any) -> Any:
            for word in named if isinstance(value, str) else ():
                if word in value and word not in paths:
                    raise self._no_file(word)
                value = value.replace(word, paths.get(word, ""))
            return value

        arguments = self.settings.arguments_of.get(self.path.stem, self.settings.arguments)
        told: dict[str, Any] = {"arguments": [filled(value) for value in arguments]}
        if isinstance(self.settings, NVFlareSettings):
            return {**told, "site_name": self.settings.site_name}
        known = {name: paths[word] for name, word in (("data-path", DATA), ("test-path", TEST)) if word in paths}
        given = {name: filled(value) for name, value in self.settings.node_config.items()}
        return {**told, "node_config": {**known, **given}}

    def _no_file(self, word: str) -> HanseError:
        option = {DATA: "--data", TEST: "--test"}[word]
        return HanseError(
            ErrorCode.POLICY,
            f"policy.site_code.{self.kind}: {word} stands for the file of {option}, and the datapod has none",
            hint=f"start the datapod with {option}, or take {word} out of the policy",
        )

    def _failed(self, operation: str, answer: Mapping[str, Any]) -> HanseError:
        name = self.path.name
        kind = answer.get("kind")
        if kind == "unfit":
            return unfit(
                f"site code {name}: {operation}: {str(answer.get('message'))[:300]}", str(answer.get("found", "")),
                code=ErrorCode.TRAINING_FAILED, hint="see docs/bring-your-code.md",
            )  # fmt: skip
        if kind == "over":
            return HanseError(
                ErrorCode.TRAINING_FAILED,
                f"site code {name}: {operation}: its process ended (status {answer.get('status')}) before it answered",
                hint="a status of -9 mostly means that the machine ran out of memory; see the datapod's log",
            )
        # The message may quote the data, and stays at the site, as of `hanse_fabric.errors.raised`.
        where = (
            f" {str(answer.get('file'))[:100]}, line {answer['line']}" if isinstance(answer.get("line"), int) else ""
        )
        return unfit(
            f"site code {name}{where}: {operation} raised {_identifier(answer.get('type'))}",
            str(answer.get("message", ""))[:2000], code=ErrorCode.TRAINING_FAILED,
            hint="the site's log has its message and where it was raised; they may quote the data, so they stay there",
        )  # fmt: skip

    def _examples(self, said: Mapping[str, Any], known: int) -> int:
        told = said.get("examples")
        if told is None:
            return known
        if type(told) is not int or not 0 <= told < _MOST_EXAMPLES:
            raise self._wrong(f"examples {told!r}", "a whole number of examples, 0 or more")
        return told

    def _metrics(self, said: Mapping[str, Any]) -> dict[str, float]:
        told = said.get("metrics")
        if not isinstance(told, dict):
            raise self._wrong("metrics", "numbers by name")
        for name, value in told.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise self._wrong(f"{name}: {value!r}", "a finite number as each metric")
        return {name: float(value) for name, value in told.items()}

    def _wrong(self, found: str, expected: str) -> HanseError:
        return HanseError(
            ErrorCode.TRAINING_FAILED, f"site code {self.path.name}: it must answer with {expected}", found=found[:200],
            hint="see docs/bring-your-code.md",
        )  # fmt: skip


def load_foreign(
    location: Path | None, wanted: Mapping[str, Any], settings: ForeignSettings, data: DataSettings | None, run: str
) -> ForeignCode:
    """The code that a task names, of another framework; `run` as in `ForeignCode`.

    Raises:
        HanseError: NOT_FOUND without such a file or folder; TAMPERED where its digest is another; POLICY where the site
            names no interpreter for it.
    """
    kind = str(wanted["kind"])
    if location is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, "site code: the job asks for it, and this site has none",
            hint="mount the file or folder and start the datapod with --code PATH",
        )  # fmt: skip
    of_kind = settings.of(kind)
    if of_kind is None:
        raise HanseError(
            ErrorCode.POLICY, f"site code of {kind}: this site's policy names no interpreter for it",
            hint=f"site_code: {{{kind}: {{interpreter: /opt/{kind}/bin/python}}}}",
        )  # fmt: skip
    source = read_source(location, wanted)
    if kind == "nvflare" and source.entry is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"site code {source.path.name}: a script is expected, a folder was found"
        )
    return ForeignCode(kind, source, of_kind, data, run)


def _arrays(model: nn.Module | Arrays) -> Arrays:
    if isinstance(model, nn.Module):
        raise TypeError("code of another framework has its own model")
    return model


def _as_given(array: np.ndarray, given: np.ndarray | None) -> np.ndarray:
    """Floats in the model's precision: others' frameworks do not say which they send."""
    both_floats = given is not None and array.dtype.kind == given.dtype.kind == "f"
    return array.astype(given.dtype) if given is not None and both_floats and array.dtype != given.dtype else array


def _identifier(name: object) -> str:
    return str(name) if isinstance(name, str) and name.isidentifier() and len(name) < 80 else "an exception"
