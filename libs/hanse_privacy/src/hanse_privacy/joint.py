"""A joint computation: every member computes arrays by a function of the site's, they are summed (masked, in a ring
that is announced array by array) or, where they may be seen, collected; a function of the hub's makes objects and a few
facts of that. What is written over `JointVerbs` runs the same on a hub and in one process. No numpy here.

Objects are tensor files of named arrays and stay in the store: whoever conducts the computations passes on handles.
Facts are what is decided by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hanse_fabric.messages.masking import Ring

Fact = float | int | str | bool | None | list[Any] | dict[str, Any]
Settings = Mapping[str, Any]
"""Facts by name, as a function is told them; the function knows what each is."""
Handle = Any
"""An object: a reference into the store, or what a rehearsal in one process has in its stead."""
SUMS = "sums"
"""The hub's function that every aggregator has: the sums themselves, of whole numbers, are the facts."""


@dataclass(frozen=True, slots=True)
class Computation:
    """What is asked of all members.

    Attributes:
        key: names it, and is the same at every replay: `samples`, `c0007-logistic-3`; lower case, digits and `-`.
        function: name of the hub's function; where sites have several, also of theirs.
        settings: small things that both are told: the chunk's range, the iteration.
        to_sites: objects of former computations that the sites need; `at_hub`: that the hub's function alone needs.
        rings: by array: how it is summed. None: nothing is masked, and the hub's function sees each member's arrays.
        sites: False where the hub's function needs nothing of the sites.
    """

    key: str
    function: str = SUMS
    settings: Mapping[str, Fact] = field(default_factory=dict)
    to_sites: Mapping[str, Handle] = field(default_factory=dict)
    at_hub: Mapping[str, Handle] = field(default_factory=dict)
    rings: Mapping[str, Ring] | None = None
    sites: bool = True


@dataclass(frozen=True, slots=True)
class JointOutcome:
    """What came of it: objects by name, and facts."""

    outputs: Mapping[str, Handle]
    facts: Mapping[str, Fact]


class JointVerbs(Protocol):
    """Where joint computations are done."""

    @property
    def members(self) -> tuple[str, ...]:
        """The participants, sorted: the same from the first computation to the last."""
        ...

    async def compute(self, asked: Computation) -> JointOutcome:
        """Do a joint computation; done once, however often it is asked for.

        Raises:
            HanseError: what a site's or the hub's function has found wrong, naming the member where it is one's.
        """
        ...

    def note(self, kind: str, about: str, **data: Fact) -> None:
        """Tell those who watch: `progress` of chunks, counts of what was left out."""
        ...
