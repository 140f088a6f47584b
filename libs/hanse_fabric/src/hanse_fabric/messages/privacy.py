"""Differential privacy: the job's section `privacy`, and what a task says of it. What it means is `hanse_privacy`'s.

The section stands here, among the messages, because every task of such a job carries it to the site's ledger.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Base64Bytes, Field, model_validator

from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import Digest, Slug

MOST_ROUNDS = 100_000
"""Of a job, and so of what a task says of its run. Noise for so many, of one release each, is reckoned in some seconds;
for ten times as many in half a minute."""


class PrivateMetrics(Frozen):
    """Metrics and numbers of people that leave with noise, and are charged (`hanse_privacy.noise.metrics`).

    Attributes:
        epsilon: of each answer, all its numbers together; on top of what the updates cost.
        bounds: by name of a metric what it is cut to: to +-bound as a whole, with dp_sgd to 0..bound for each example.
            None are needed for metrics of counts (`evaluate.metrics`).
        rows: test examples of one unit of the project's schema that are counted, at most; 1 where each is its own.
    """

    epsilon: float = Field(default=1.0, ge=1e-4, le=1e6)
    bounds: dict[str, Annotated[float, Field(gt=0, le=1e6)]] = Field(default={}, max_length=16)
    rows: int = Field(default=1, ge=1, le=1_000_000, exclude_if=lambda given: given == 1)  # since 0.2.0


USUAL_SHARE = 0.1
"""Of the run's epsilon and delta, for the preparation, where the job does not say it."""
USUAL_MULTIPLIER = 10.0
"""Noise of the preparation where the job gives a multiplier for its rounds and none for this: epsilon 0.4 at 1e-6."""


class PrivatePreparation(Frozen):
    """What the sums of a table's preparation cost, which leave with noise before the first round.

    Attributes:
        share: of the run's epsilon and delta; the rounds have the rest. Where the job gives epsilon.
        noise_multiplier: noise per unit of what one person can change the sums by. Where the job gives a multiplier.
    """

    share: float | None = Field(default=None, gt=0, lt=1)
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e6)

    @model_validator(mode="after")
    def _one(self) -> PrivatePreparation:
        if (self.share is None) == (self.noise_multiplier is None):
            raise ValueError("give share or noise_multiplier, one of them")
        return self


class Correlation(Frozen):
    """A lower triangular Toeplitz matrix, by which noise is correlated from round to round
    (`hanse_privacy.correlated.matrix`).

    Attributes:
        weights: without decays the first column's numbers after 1; none of them: the identity. With decays a weight
            for each of them.
        decays: of the buffers that a buffered matrix has.
    """

    weights: tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = Field(default=(), max_length=4096)
    decays: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field(default=(), max_length=64)

    @model_validator(mode="after")
    def _paired(self) -> Correlation:
        if self.decays and len(self.decays) != len(self.weights):
            raise ValueError("give a weight for each of the decays")
        return self


class BandedMatrix(Frozen):
    """The best matrix with so many bands, at most `min_separation` (`hanse_privacy.correlated`). One: the identity.

    Attributes:
        bands: of the matrix.
    """

    name: Literal["banded"]
    bands: int = Field(ge=1, le=4097)


class BufferedMatrix(Frozen):
    """The best matrix with so many buffers (BLT).

    Attributes:
        buffers: of the matrix; each is as large as the model.
    """

    name: Literal["blt"]
    buffers: int = Field(ge=1, le=16)


Matrix = Annotated[BandedMatrix | BufferedMatrix, Field(discriminator="name")]


class Privacy(Frozen):
    """Differential privacy of a run.

    Attributes:
        placement: `local`: each site makes its own answer private, by itself; `distributed`: each adds a share of the
            noise within the masked sum; `central`: the hub clips and adds noise, and is trusted with plain updates.
        mechanism: `dp_sgd` (local, per example or unit, within training), or noise on the clipped update; `dp_ftrl`
            (central, distributed): normal noise that is correlated from round to round, for the whole run together.
        clip: norm to which the update (dp_sgd: the gradient of each example) is clipped: L2 for Gaussian kinds, L1 for
            Laplace kinds and staircase.
        epsilon, delta: the whole run's guarantee; or
        noise_multiplier: noise per unit of `clip` (standard deviation for Gaussian, scale for the others) per round;
            for dp_ftrl of the independent noise that correlated noise is made of.
        adaptive_clip: central: the quantile of the updates' norms that the clipping norm is moved to; None: fixed.
        noise: distributed: how the sites' shares of it are made (docs/privacy.md).
        colluding: `distributed-gamma`: how many sites may collude, without the noise of the others becoming short.
        scale: `calibrated`, or `literal`: as Mugunthan (2022) prints it, of which the true epsilon is larger.
        metrics: what is told beside updates, with noise; None: nothing by sites with `privacy.required`.
        preparation: what a table's preparation costs; a submitted job has it where its preparation needs sums.
        matrix: dp_ftrl: how noise is correlated.
        min_separation: dp_ftrl: rounds from one in which a site takes part to the next, at least; 1: every round.
        site_epsilon: by participant, where it differs from `epsilon` (local placements; Mugunthan, 2022, Table 5.2).
    """

    placement: Literal["local", "distributed", "central"]
    mechanism: Literal["dp_sgd", "gaussian", "laplace", "staircase", "discrete_gaussian", "discrete_laplace", "dp_ftrl"]
    clip: float = Field(default=1.0, gt=0, le=1e6)
    epsilon: float | None = Field(default=None, gt=0, le=1e6)
    delta: float = Field(default=1e-5, ge=0, lt=1)
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e6)
    adaptive_clip: float | None = Field(default=None, gt=0, lt=1)
    noise: Literal["local-laplace", "distributed-gamma", "oblivious", "oblivious-shuffled"] | None = None
    colluding: int = Field(default=0, ge=0)
    scale: Literal["calibrated", "literal"] = "calibrated"
    site_epsilon: dict[Slug, float] = {}
    metrics: PrivateMetrics | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    preparation: PrivatePreparation | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    matrix: Matrix | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    min_separation: int | None = Field(default=None, ge=1, exclude_if=lambda given: given is None)  # since 0.2.0

    @model_validator(mode="after")
    def _determined(self) -> Privacy:
        for name, given in (("matrix", self.matrix), ("min_separation", self.min_separation)):
            if (given is None) == (self.mechanism == "dp_ftrl"):
                raise ValueError(f"give {name} with mechanism dp_ftrl, and with no other")
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give epsilon or noise_multiplier, one of them")
        prepared = self.preparation
        if prepared is not None and (prepared.share is None) != (self.epsilon is None):
            raise ValueError("give preparation.share beside epsilon, preparation.noise_multiplier beside its own")
        return self

    @property
    def usual_preparation(self) -> PrivatePreparation:
        """What a preparation costs in a job that does not say it."""
        if self.epsilon is None:
            return PrivatePreparation(noise_multiplier=USUAL_MULTIPLIER)
        return PrivatePreparation(share=USUAL_SHARE)


class PrivacyTerms(Frozen):
    """The job's privacy section with the numbers that a site needs to make its noise and to charge its ledger.

    Attributes:
        privacy: the job's section.
        rounds: how many rounds the run has: what a total budget is spread over.
        round: this one, from 1.
        active: how many participants share the noise of a distributed placement.
        attempt: from 1; noise is drawn anew for each, and each is charged.
        correlation: dp_ftrl: the matrix that the hub has found.
        members: dp_ftrl, distributed: all who add shares of noise, in every round of the run, sorted.
        training: dp_ftrl, distributed: who of them trains in this round, sorted; the others rest, and add noise alone.
    """

    privacy: Privacy
    rounds: int = Field(ge=1, le=MOST_ROUNDS)
    round: int = Field(ge=1)
    active: int = Field(ge=1)
    attempt: int = Field(default=1, ge=1)
    correlation: Correlation | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    members: tuple[Slug, ...] = Field(default=(), exclude_if=lambda given: not given)  # since 0.2.0
    training: tuple[Slug, ...] = Field(default=(), exclude_if=lambda given: not given)  # since 0.2.0

    def rests(self, participant: str) -> bool:
        """Whether a member adds noise alone in this round."""
        return bool(self.members) and participant not in self.training


class LedgerHead(Frozen):
    """How far a site's privacy ledger, or its log of what left, had come, in the site's own signature
    (`hanse_privacy.witness`).

    Attributes:
        entries: of the ledger or log.
        head: the newest entry's hash.
        signature: Ed25519 by the participant's key.
    """

    entries: int = Field(ge=1)
    head: Digest
    signature: Base64Bytes


class LedgerRecord(Message):
    """What the hub has seen of a site.

    Attributes:
        newest: head of its privacy ledger, which is handed back with each private task.
        outbox: head of its log of what left, which is handed back beside each task.
    """

    schema_id: ClassVar[str] = "hanse.ledger_record/1"

    newest: LedgerHead | None = None
    outbox: LedgerHead | None = None
