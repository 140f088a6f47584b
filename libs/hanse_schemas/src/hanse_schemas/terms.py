"""A project's terms: what its owner asks sites to agree to before they join, and a site's consent to them.

A digest means the whole of them, the data's schema too: it is of their canonical bytes, and whoever reads terms
computes it anew. So nobody can show some terms and have the consent to others. Terms are never changed: an owner who
wants others writes the next version, and each site says again whether it consents.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.names import Digest, Slug
from hanse_schemas.protocols import ProtocolName, asked_by_job
from hanse_schemas.schema import DataSchema

if TYPE_CHECKING:
    from hanse_schemas.job import Job

_Line = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
By = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Who consents for a site, as the site says it."""
_DEFAULT_ALGORITHM = "fedavg"
AT_DELTA = 1e-5
"""Of an epsilon that is agreed on: at a larger delta, the same epsilon is less noise."""


class AskedTerms(Frozen):
    """What a project's owner writes; what stays unsaid is open.

    Attributes:
        owner: who answers for the project, and whom to ask: an organisation, a person, an address.
        purpose: what it is for, in words.
        workflows: the kinds of runs; none: any.
        algorithms: of sites' training (`train.algorithm`); none: any, and the sites' own code.
        protocols: of many fine questions (`hanse_schemas.protocols`) that jobs may ask; None: any. What is counted with
            noise asks none of them, where `epsilon` says how much of it there is.
        masked: whether nothing leaves a site but within masked sums.
        noise: whether nothing is trained, and no columns are summed for it, without differential privacy.
        epsilon: that a run may cost a site at delta 1e-5, of all its rounds, metrics and preparation together that have
            noise; what has none costs no epsilon. None: not said.
        minimum_sites: no step is asked of fewer.
        told: what a site will tell of itself and its data, a sentence each, for people.
    """

    owner: _Line
    purpose: str = Field(min_length=1, max_length=4000)
    workflows: tuple[_Name, ...] = Field(default=(), max_length=32)
    algorithms: tuple[_Name, ...] = Field(default=(), max_length=64)
    protocols: tuple[ProtocolName, ...] | None = None
    masked: bool = False
    noise: bool = False
    epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    minimum_sites: int = Field(default=2, ge=1, le=10_000)
    told: tuple[_Line, ...] = Field(default=(), max_length=32)


class ProjectTerms(Message):
    """The terms of a project, as sites consent to them.

    Attributes:
        version: from 1; an owner who writes other terms writes the next.
        data_schema: what every site's data must look like, with the columns and their units.
    """

    schema_id: ClassVar[str] = "hanse.project_terms/1"

    project: Slug
    version: int = Field(ge=1)
    asked: AskedTerms
    data_schema: DataSchema

    @property
    def digest(self) -> Digest:
        """SHA-256 of the canonical bytes, hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def in_words(self) -> list[str]:
        """A sentence for each thing that is agreed on; the columns of the data are not among them."""
        asked = self.asked
        protocols = "any" if asked.protocols is None else _named(asked.protocols, none="none")
        epsilon = "" if asked.epsilon is None else f"; what has noise costs a site epsilon {asked.epsilon:g} a run"
        return [
            f"{asked.owner} answers for project {self.project}",
            f"purpose: {' '.join(asked.purpose.split())}",
            f"kinds of runs: {_named(asked.workflows)}; algorithms: {_named(asked.algorithms)}",
            f"fine questions of the data: {protocols}",
            "nothing leaves a site but in masked sums" if asked.masked else "answers may leave without masks",
            ("nothing is trained without noise" if asked.noise else "training without noise is allowed") + epsilon,
            f"no step is asked of fewer than {asked.minimum_sites} sites",
            *(f"a site tells: {each}" for each in asked.told),
        ]

    def broken_by(self, job: Job) -> list[str]:
        """What a job asks beyond these terms, as lines that name its keys. Pure."""
        asked, found = self.asked, list[str]()
        if asked.workflows and job.workflow not in asked.workflows:
            found.append(f"workflow: {job.workflow}; agreed: {_named(asked.workflows)}")
        if asked.algorithms and job.study is None:
            name = "site code" if job.code is not None else algorithm_of(job.train)
            if name not in asked.algorithms:
                found.append(f"train.algorithm: {name}; agreed: {_named(asked.algorithms)}")
        if asked.protocols is not None:
            more = sorted(set(asked_by_job(job, trusted=asked.epsilon is not None)) - set(asked.protocols))
            if more:
                found.append(f"protocols: {', '.join(more)}; agreed: {_named(asked.protocols, none='none')}")
        if asked.masked and (job.secure_aggregation is None or job.secure_aggregation.mode == "ring"):
            found.append("secure_aggregation: none; agreed: nothing leaves a site but in masked sums")
        if asked.noise and job.privacy is None:
            found.append("privacy: none; agreed: nothing is trained without noise")
        if asked.epsilon is not None and job.privacy is not None:
            found += _beyond_epsilon(job, job.privacy, asked.epsilon)
        if job.participants.minimum < asked.minimum_sites:
            found.append(f"participants.minimum: {job.participants.minimum}; agreed: {asked.minimum_sites} at least")
        return found


class SiteConsent(Message):
    """What a site signs when it consents (the canonical bytes; they are not sent).

    Attributes:
        terms: the digest of what was shown.
        by: who has consented for the site.
        at: when, by the site's clock.
    """

    schema_id: ClassVar[str] = "hanse.site_consent/1"

    project: Slug
    participant: Slug
    terms: Digest
    by: By
    at: Time


def algorithm_of(train: dict[str, object]) -> str:
    """The name of a training section's algorithm. Pure."""
    given = train.get("algorithm", _DEFAULT_ALGORITHM)
    return str(given.get("name", _DEFAULT_ALGORITHM)) if isinstance(given, dict) else str(given)


def within(epsilon: float | None, most: float, *, delta: float) -> bool:
    """Whether an epsilon is said, and is not above the terms'. Pure."""
    return epsilon is not None and epsilon <= most and delta <= AT_DELTA


def _beyond_epsilon(job: Job, privacy: Privacy, most: float) -> list[str]:
    """What of a job's noise costs a site more than was agreed to, metrics as if their costs simply added up."""
    agreed = f"agreed: {most:g} at delta {AT_DELTA:g}, of all that a run costs a site"
    highest = [privacy.epsilon, *privacy.site_epsilon.values()]
    if not all(within(each, most, delta=privacy.delta) for each in highest):
        return [f"privacy.epsilon: {privacy.epsilon} at delta {privacy.delta:g}; {agreed}"]
    answers = -(-job.rounds // job.evaluate.every) if job.evaluate.every else 0
    if privacy.mechanism != "dp_sgd":  # whose training tells no metrics
        answers += job.rounds
    metrics = 0.0 if privacy.metrics is None else answers * privacy.metrics.epsilon
    if not all((each or 0.0) + metrics <= most for each in highest):
        return [f"privacy.metrics: epsilon {metrics:g} in {answers} answers beside {privacy.epsilon}; {agreed}"]
    return []


def _named(names: tuple[str, ...], *, none: str = "any") -> str:
    return ", ".join(names) or none
