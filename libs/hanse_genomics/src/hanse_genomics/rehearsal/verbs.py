"""The verb of a study in one process. Sums go through the platform's ring codec, but nothing is masked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Ring
from hanse_genomics import hub, site
from hanse_genomics.arrays import Array, Arrays
from hanse_genomics.files.cohort import Cohort
from hanse_genomics.site import SiteStudy
from hanse_privacy.joint import Computation, Fact, JointOutcome
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.words import DTYPES
from hanse_schemas.study import Study

_SIGNED: dict[int, Any] = {32: np.int32, 64: np.int64}


class RehearsalVerbs:
    """Where a study runs without servers. Handles are the arrays themselves.

    Args:
        cohorts: by name, opened for this study.
        state: a folder; each cohort has one in it.
    """

    def __init__(self, cohorts: Mapping[str, Cohort], study: Study, state: Path) -> None:
        self._study = study
        self._sites = {name: SiteStudy(cohorts[name], study, state / name) for name in sorted(cohorts)}
        for one in self._sites.values():
            one.state.mkdir(parents=True, exist_ok=True)
        self.asked: list[Computation] = []
        self.notes: list[tuple[str, str, dict[str, Fact]]] = []

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._sites)

    async def compute(self, asked: Computation) -> JointOutcome:
        self.asked.append(asked)
        return await asyncio.to_thread(self._compute, asked)

    def note(self, kind: str, about: str, **data: Fact) -> None:
        self.notes.append((kind, about, data))

    def _compute(self, asked: Computation) -> JointOutcome:
        total: Any = {}
        if asked.sites:
            answers = {name: self._answer(name, asked) for name in self._sites}
            total = answers if asked.rings is None else self._sum(asked, list(answers.values()))
        given = {**asked.to_sites, **asked.at_hub}
        finished = hub.STEPS[asked.function](self._study, asked.settings, total, given)
        return JointOutcome(finished.outputs, finished.facts)

    def _answer(self, name: str, asked: Computation) -> Arrays:
        try:
            return site.STEPS[asked.function](self._sites[name], asked.settings, asked.to_sites)
        except HanseError as error:
            raise HanseError(error.code, f"{name}: {error.message}", hint=error.hint) from error

    def _sum(self, asked: Computation, answers: list[Arrays]) -> Arrays:
        rings = asked.rings or {}
        for arrays in answers:
            if set(arrays) != set(rings):
                raise HanseError(
                    ErrorCode.INTERNAL, f"{asked.key}: arrays {sorted(arrays)} are not those announced, {sorted(rings)}"
                )
        return {name: self._summed([arrays[name] for arrays in answers], rings[name]) for name in rings}

    def _summed(self, parts: list[Array], ring: Ring) -> Array:
        total = np.zeros(parts[0].shape, dtype=DTYPES[ring.bits])
        for part in parts:
            elements, _ = encode(part, ring, refuse=True)
            total += elements
        if ring.fraction == 0:
            exact: Array = total.view(_SIGNED[ring.bits]).astype(np.int64)
            return exact
        return decode(total, ring)
