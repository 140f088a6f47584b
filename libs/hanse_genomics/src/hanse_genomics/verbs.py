"""The one verb that a study is written in, so that it runs the same on the hub and in one process. No numpy here.

A joint computation: every cohort computes arrays by a function of `hanse_genomics.site`, they are summed (masked, in a
ring that is announced array by array) or, where they may be seen, collected; a function of `hanse_genomics.hub` makes
objects and a few facts of that. Objects are tensor files of named arrays and stay in the store: a study passes on
handles. Facts are what it decides by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hanse_fabric.messages.masking import Ring

Fact = float | int | str | bool | None | list[Any] | dict[str, Any]
Settings = Mapping[str, Any]
"""Facts by name, as a step is told them; the step knows what each is."""
Handle = Any
"""An object of the study: a reference into the store, or what the in-process rehearsal has in its stead."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A joint computation.

    Attributes:
        key: names it, and is the same at every replay: `samples`, `c0007-logistic-3`; lower case, digits and `-`.
        step: name of the function at the sites and of that at the hub.
        settings: small things that both are told: the chunk's range, the iteration.
        to_sites: objects of former computations that the sites need; `at_hub`: that the hub's function alone needs.
        rings: by array: how it is summed. None: nothing is masked, and the hub's function sees each cohort's arrays.
        sites: False where the hub's function needs nothing of the sites.
    """

    key: str
    step: str
    settings: Mapping[str, Fact] = field(default_factory=dict)
    to_sites: Mapping[str, Handle] = field(default_factory=dict)
    at_hub: Mapping[str, Handle] = field(default_factory=dict)
    rings: Mapping[str, Ring] | None = None
    sites: bool = True


@dataclass(frozen=True, slots=True)
class Made:
    """What came of it: objects by name, and facts."""

    outputs: Mapping[str, Handle]
    facts: Mapping[str, Fact]


class StudyVerbs(Protocol):
    """Where a study runs."""

    @property
    def cohorts(self) -> tuple[str, ...]:
        """The participants, sorted: the same from the first computation to the last."""
        ...

    async def compute(self, asked: Asked) -> Made:
        """Do a joint computation; done once, however often it is asked for.

        Raises:
            HanseError: what a site's or the hub's function has found wrong, naming the cohort where it is one's.
        """
        ...

    def note(self, kind: str, about: str, **data: Fact) -> None:
        """Tell those who watch: `progress` of chunks, counts of SNPs left out."""
        ...
