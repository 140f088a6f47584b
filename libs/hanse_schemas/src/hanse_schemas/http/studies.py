"""A study's results for pages: thinned points, and hits to search; all of them are in its outputs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest


class ChromosomeView(Frozen):
    """A chromosome, and from where to where its SNPs reach."""

    chromosome: str
    begin: int
    end: int


class StudyView(Frozen):
    """A study that has completed, in a few numbers.

    Attributes:
        digest: of the output `results`, which all this is taken from.
        test: which was done.
        snps: in all; `tested`: of them.
        genome_wide: how many are significant at 5e-8; `bonferroni`: at `level`, 0.05 by the number tested.
        inflation: genomic inflation (lambda); 1 means none.
        effect: what `HitView.effect` is: odds ratio or beta; empty: the test tells none.
        summary: what the study says of its samples, cohorts and quality control.
    """

    digest: Digest
    test: str
    snps: int
    tested: int
    genome_wide: int
    bonferroni: int
    level: float
    inflation: float | None
    effect: str
    chromosomes: tuple[ChromosomeView, ...]
    summary: dict[str, Any]


class PointsQuery(Frozen):
    """Which part of the genome to draw, and with how many points at most."""

    chromosome: str | None = Field(default=None, min_length=1, max_length=2)
    begin: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)
    points: int = Field(default=3000, ge=100, le=20_000)


class StudyPoints(Frozen):
    """SNPs in genome order; all lists are equally long.

    Attributes:
        there: tested SNPs of that part, of which these are some: first those with the smallest p, then one for each
            cell of a grid, so that the picture is the same.
    """

    there: int
    chromosome: tuple[str, ...]
    position: tuple[int, ...]
    minus_log10_p: tuple[float, ...]
    snp: tuple[str, ...]


class QuantilesQuery(Frozen):
    """How many points the quantile-quantile plot may have."""

    points: int = Field(default=600, ge=100, le=5000)


class StudyQuantiles(Frozen):
    """Minus log10 of p, expected and observed, largest first."""

    expected: tuple[float, ...]
    observed: tuple[float, ...]


class HitsQuery(Frozen):
    """Hits by p. `contains`: part of a name, or `2:1000-2000` (chromosome, positions); `after`: ranks to pass."""

    contains: str = Field(default="", max_length=200)
    after: int = Field(default=0, ge=0, le=10**9)
    limit: int = Field(default=50, ge=1, le=1000)


class HitView(Frozen):
    """A tested SNP.

    Attributes:
        rank: 1 has the smallest p of those that are asked for.
        a1, a2: alleles, the minor one over all cohorts first; `frequency` is of A1.
        effect: with its 95 % confidence interval.
        p: 0 where it is too small for a double; `minus_log10_p` tells it then.
    """

    rank: int
    snp: str
    chromosome: str
    position: int
    a1: str
    a2: str
    frequency: float | None
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    minus_log10_p: float


class HitList(Frozen):
    """A part of the hits; `there`: how many there are in all."""

    there: int
    hits: tuple[HitView, ...]
