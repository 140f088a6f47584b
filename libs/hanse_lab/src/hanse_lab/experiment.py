"""Experiment files: what is compared on which data, and what is claimed of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.text_files import read_yaml

Spurious = Literal["none", "rotated", "coloured"]
SMALLER_IS_BETTER = frozenset({"loss", "mse"})
Name = Annotated[str, Field(min_length=1, max_length=60)]
Rows = Name | Annotated[tuple[Name, ...], Field(min_length=1)]


class DataConfig(Frozen):
    """What is learned.

    Attributes:
        name: `digits` (scikit-learn's 1,797 images of 8x8), `npz` (a file with x, y, and perhaps site), or `signs`
            (made from a seed: few features that tell the class everywhere, many that do so by another sign at each
            site, and by the reverse of most sites' in testing).
        path: of the NPZ file, from the experiment file's folder.
        spurious: a feature that tells the class in training and not in testing, for images.
        held_out: share of all examples that is for testing.
        validation: share of all examples by which rows are chosen where a claim names several; nobody trains on them.
    """

    name: Literal["digits", "npz", "signs"] = "digits"
    path: str | None = None
    spurious: Spurious = "none"
    held_out: float = Field(default=0.2, gt=0, lt=1)
    validation: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> DataConfig:
        if self.held_out + self.validation >= 1:
            raise ValueError(
                f"validation: {self.validation:g} beside held_out {self.held_out:g} leaves none to train on"
            )
        if (self.name == "npz") != (self.path is not None):
            raise ValueError("path: of npz, and of npz alone")
        if self.name == "signs" and (self.spurious != "none" or self.validation):
            raise ValueError("spurious, validation: not of signs, which are made as they are; leave them out")
        return self


class AttackConfig(Frozen):
    """What hostile sites do: send the update times -factor or factor, or learn class c as the last class minus c.

    Attributes:
        share: of the sites, rounded to whole ones; the seed decides which.
    """

    name: Literal["sign_flip", "scaled", "label_flip"]
    share: float = Field(ge=0, lt=1)
    factor: float = Field(default=1.0, gt=0, le=1e6)


class ParticipantsConfig(Frozen):
    """Who takes part in a round.

    Attributes:
        fraction: share of the sites that a round asks.
        quorum: share of those asked that must answer; with fewer answers the run fails.
        absent: probability of each site asked not to answer in a round, drawn from the seed.
    """

    fraction: float = Field(default=1.0, gt=0, le=1)
    quorum: float = Field(default=1.0, gt=0, le=1)
    absent: float = Field(default=0.0, ge=0, lt=1)


class Variant(Frozen):
    """A row: how its job differs from the experiment's. Sections are merged key by key; null takes a key out.

    Attributes:
        privacy, codec: null for a row without the experiment's section.
        pooled: one site that has all data: training without federation.
        paper: by partition, what the paper has in this row, which the tables show beside the outcome.
    """

    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    strategy: dict[str, Any] = {}
    privacy: dict[str, Any] | None = {}
    codec: dict[str, Any] | None = {}
    rounds: int | None = Field(default=None, ge=1)
    pooled: bool = False
    paper: dict[Name, float] = {}


class Claim(Frozen):
    """That one row is better than another, or gains more, which the report holds against the seeds' outcomes.

    Attributes:
        better, worse: rows; of several (rates that were tried) the one of the best mean in the column counts, by the
            validation examples.
        over: gains are compared: the row that the better one gains over, and the row that the worse one does.
        says: the claim in words, with its source.
        paper: the difference that the source has, in its words; empty where it has none.
        partitions, attacks: in which columns; None: all.
        after: rounds, of an early comparison; None: at the end.
        worst: compares the sites that are worst off, instead of the mean over all.
    """

    says: str
    better: Rows
    worse: Rows
    over: tuple[Rows, Rows] | None = None
    partitions: tuple[Name, ...] | None = None
    attacks: tuple[Name, ...] | None = None
    after: int | None = Field(default=None, ge=1)
    paper: str = ""
    worst: bool = False

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of `better`, of `worse`, and of what either gains over, where that is asked."""
        return [(each,) if isinstance(each, str) else each for each in (self.better, self.worse, *(self.over or ()))]


class Experiment(Frozen):
    """An experiment.

    Attributes:
        about: what is asked and why, for the report.
        partitions: columns, as `hanse_learning.partition.partition` takes them; `{name: own}` for data with sites;
            `{name: feature}`: each class along the mean of its features. `sites` in one: another number of sites there.
        rounds, every: how many, and after how many the model is measured.
        last: measurements at the end whose mean is the outcome.
        model, train, strategy, weighting, codec: as in a job file.
        privacy: as in a job file, of placement local (dp_sgd and noise on updates) or central.
        algorithms: rows.
        attacks: further columns; without, nobody attacks.
        metric: of the tables and claims.
        target: of that metric, for "rounds to a target".
        test: `common`: all held-out examples; `own`: for each site, a share of its own that it did not train on.
        panels: of the picture: rows by the panel's title; without, five rows a panel.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")
    title: str
    about: str = ""
    data: DataConfig = DataConfig()
    sites: int = Field(ge=1, le=10_000)
    partitions: dict[Name, dict[str, Any]] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    rounds: int = Field(ge=1, le=100_000)
    every: int = Field(default=1, ge=1)
    last: int = Field(default=1, ge=1)
    model: dict[str, Any]
    train: dict[str, Any] = {}
    strategy: dict[str, Any] = {}
    weighting: Literal["examples", "uniform"] = "examples"
    privacy: dict[str, Any] = {}
    codec: dict[str, Any] = {}
    participants: ParticipantsConfig = ParticipantsConfig()
    algorithms: dict[Name, Variant] = Field(min_length=1)
    attacks: dict[Name, AttackConfig | None] = Field(default={"none": None}, min_length=1)
    metric: str = "accuracy"
    target: float | None = None
    test: Literal["common", "own"] = "common"
    claims: tuple[Claim, ...] = ()
    panels: dict[Name, tuple[Name, ...]] = {}

    @model_validator(mode="after")
    def _validates(self) -> Experiment:
        if self.data.validation and self.test == "own":
            raise ValueError("data.validation: not with test own, whose sites have no examples in common")
        alone = next((n for n, each in enumerate(self.claims) if each.worst), None)
        if alone is not None and self.test != "own":
            raise ValueError(f"claims.{alone}.worst: with test own alone, where each site has examples of its own")
        chosen = next((n for n, each in enumerate(self.claims) if max(map(len, each.rows())) > 1), None)
        if chosen is not None and not self.data.validation:
            raise ValueError(f"claims.{chosen}: several rows are chosen from by data.validation, which is 0")
        return self

    @model_validator(mode="after")
    def _names(self) -> Experiment:
        for title, rows in self.panels.items():
            if odd := [name for name in rows if name not in self.algorithms]:
                raise ValueError(f"panels.{title}: {odd[0]!r} is none of {', '.join(self.algorithms)}")
        for row, variant in self.algorithms.items():
            if odd := [name for name in variant.paper if name not in self.partitions]:
                raise ValueError(f"algorithms.{row}.paper: {odd[0]!r} is none of {', '.join(self.partitions)}")
        for number, claim in enumerate(self.claims):
            better, worse, *over = claim.rows()
            for field, given, known in (
                ("better", better, self.algorithms),
                ("worse", worse, self.algorithms),
                ("over", sum(over, ()), self.algorithms),
                ("partitions", claim.partitions or (), self.partitions),
                ("attacks", claim.attacks or (), self.attacks),
            ):
                if odd := [name for name in given if name not in known]:
                    raise ValueError(f"claims.{number}.{field}: {odd[0]!r} is none of {', '.join(known)}")
        return self


def read_experiment(path: Path, *, seeds: int | None = None, rounds: int | None = None) -> Experiment:
    """Read an experiment file (YAML or JSON).

    Args:
        seeds: take so many of its first seeds only.
        rounds: play no more than so many rounds in any cell; where that is fewer than the file says, all claims are of
            these.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT naming each field, its value and what was expected.
    """
    body = read_yaml(path, "experiment file")
    if not isinstance(body, Mapping):
        raise invalid(str(path), type(body).__name__, "a mapping with name, title, sites, partitions, rounds, model")
    try:
        experiment = Experiment.model_validate(body)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: {explain(error, Experiment)}") from None
    changed: dict[str, Any] = {}
    if seeds is not None:
        changed["seeds"] = experiment.seeds[:seeds]
    if rounds is not None:
        if rounds < max(each.rounds or experiment.rounds for each in experiment.algorithms.values()):
            changed["claims"] = tuple(
                claim.model_copy(update={"after": min(claim.after or rounds, rounds)}) for claim in experiment.claims
            )
        changed["rounds"] = min(rounds, experiment.rounds)
        changed["algorithms"] = {
            name: each if each.rounds is None else each.model_copy(update={"rounds": min(rounds, each.rounds)})
            for name, each in experiment.algorithms.items()
        }
    return experiment.model_copy(update=changed)
