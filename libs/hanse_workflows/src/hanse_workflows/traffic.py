"""Bytes that a round's models and updates have, as tasks and answers name them. Pure, so that replays count the same.

A site that has an object already does not fetch it again, and messages and keys are not counted: it is what the
algorithm needs to send, the measure by which algorithms are compared. Sums inside a step count as the sites tell them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hanse_fabric.messages import ObjectRef
from hanse_learning.codecs.bandwidth import Way, formula, way_of
from hanse_learning.codecs.config import split_down, summed_fraction
from hanse_privacy.ring.plan import ring_bits, sign_bits
from hanse_privacy.rules.sections import sums_signs
from hanse_schemas.job import Job
from hanse_workflows.ask import Ask
from hanse_workflows.outcomes import Answer, Gathered
from hanse_workflows.round_asks import due

_SUMMED = "summed_values"
"""The metric by which a site tells how many values it has given to a round's sums (and got back)."""
_VALUE = 8


@dataclass(frozen=True, slots=True)
class Move:
    """A step's bytes by site.

    Attributes:
        to: who was asked.
        given: bytes of what each of these is sent, by digest.
        own: bytes of each site's answer, of its sums in the middle, and of its own way to the model where there is one.
        ways: of these, the bytes of its own way to the model.
    """

    to: tuple[str, ...]
    given: Mapping[str, int]
    own: Mapping[str, int]
    ways: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes between the hub and all sites together.

    Attributes:
        down: models, and what the algorithm sends beside them, once for each site that was asked; where the job has
            deltas, what leads to the model from the one that the site was sent before.
        up: updates, masked tallies, and what the algorithm answers beside them, of those whose answers were taken.
        moves: the same by site, step after step.
    """

    down: int = 0
    up: int = 0
    moves: tuple[Move, ...] = ()

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down + other.down, self.up + other.up, self.moves + other.moves)

    def body(self) -> dict[str, int]:
        """As it stands in events."""
        return {"down": self.down, "up": self.up}


def traffic(ask: Ask, gathered: Gathered) -> Traffic:
    """Of one gathered step."""
    up = {
        one.participant: _size(one.update) + _size(one.tally) + _sizes(one.extras.values()) for one in gathered.answers
    }
    to, whole = tuple(gathered.asked), _size(ask.travels)
    given = {ref.digest: ref.size for ref in (ask.travels, *ask.extras.values()) if ref is not None}
    if ask.deltas is None or ask.travels is None:
        return Traffic(len(to) * (whole + _sizes(ask.extras.values())), sum(up.values()), (Move(to, given, up),))
    del given[ask.travels.digest]
    ways = {name: ask.shorter.get(name, whole) for name in to}
    own = {name: way + up.get(name, 0) for name, way in ways.items()}
    down = sum(ways.values()) + len(to) * _sizes(ask.extras.values())
    return Traffic(down, sum(up.values()), (Move(to, given, own, ways),))


def of_sums(model: ObjectRef | None, answers: Iterable[Answer]) -> Traffic:
    """Of the sums within a step: as many values up as down. No site is believed to have summed more than twice its
    model: statistics, and the gradients of them."""
    most = 2.0 * _size(model)
    each = {one.participant: int(min(max(one.metrics.get(_SUMMED, 0.0) * _VALUE, 0.0), most)) for one in answers}
    way = sum(each.values())
    return Traffic(way, way, (Move((), {}, {name: 2 * size for name, size in each.items()}),))


def by_formula(job: Job, sites: int, model: ObjectRef, bits: int | None = None) -> dict[str, int]:
    """What a round of training takes by the formulas, `down` and `up`; not told where they say nothing of a codec.

    Args:
        bits: of the ring, where it is masked; None: that of a round of which nobody knows how many examples there are.
    """
    codec, masked = job.codec, job.secure_aggregation
    up = Way() if codec is None or masked else way_of(codec.up)
    if masked is not None:
        signs = sign_bits(sites) if sums_signs(job) else 0
        up = Way(sent=summed_fraction(job), bits=(bits or ring_bits(masked, job.weighting, sites)) + signs)
    down = Way() if codec is None else way_of(codec.down, field="codec.down")
    return formula(sites, model.size, up, down)


def first_round(job: Job, model: ObjectRef) -> dict[str, int]:
    """What a site's first round takes of its line by the formulas, before anybody has measured one: `down` the model,
    and the next one where the round ends in an evaluation; `up` the update. What the formulas do not tell counts as
    nothing: a difference to the model before, or what the algorithm sends beside the update."""
    told = {"down": 0, "up": 0} | by_formula(job, 1, model)
    form, way = ((), ()) if job.codec is None else split_down(job.codec.down)
    if way:
        whole = way_of(form, field="codec.down")
        told["down"] = 0 if whole is None else formula(1, model.size, None, whole)["down"]
    if due(job.evaluate.every, 1, job.rounds):
        told["down"] += evaluated_model(job, model)
    return told


def evaluated_model(job: Job, model: ObjectRef) -> int:
    """What an evaluation takes of a site's line by the formulas: a model, of which a difference counts as nothing."""
    way = () if job.codec is None else split_down(job.codec.down)[1]
    return 0 if way else by_formula(job, 1, model).get("down", 0)


def _sizes(refs: Iterable[ObjectRef | None]) -> int:
    return sum(_size(ref) for ref in refs)


def _size(ref: ObjectRef | None) -> int:
    return 0 if ref is None else ref.size
