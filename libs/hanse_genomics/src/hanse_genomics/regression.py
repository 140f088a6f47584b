"""The regressions' part of a study: what is done once for the covariates, and what for each chunk. No numpy here.

Once: sums of the columns, then of their products about the mean, of which the hub makes the frame in which sites
standardise (mean 0, sum of squares N, orthogonal, over all cohorts); for logistic the model of the covariates alone.
A chunk of linear regressions is one masked sum. A chunk of logistic ones begins at the covariates' model, where the
weights are the same for every SNP; later sums are of the SNPs alone that have not converged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups, rings
from hanse_privacy.joint import Computation, Fact, Handle, JointOutcome, JointVerbs, Settings
from hanse_schemas.study import Study

X = 23
NULL_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of the covariates.

    Attributes:
        frame: how sites standardise; null: the model of the covariates alone (logistic).
        samples: complete ones of all cohorts; people: all of them.
        version: the lowest of the sites' (`hanse_genomics.site.opening`).
        facts: for the summary.
    """

    frame: Handle
    null: Handle | None
    samples: int
    people: int
    version: int
    facts: Mapping[str, Fact]


async def prepare(verbs: JointVerbs, study: Study, sizes: Mapping[str, int], codes: set[int], version: int) -> Model:
    """Make the frame, and for logistic the model of the covariates alone.

    Args:
        sizes: samples by group.
        codes: the chromosomes of the study's SNPs: on X, sex is a covariate always, as in PLINK.
        version: the lowest of the sites'.

    Raises:
        HanseError: INVALID_INPUT naming a covariate that is constant or that others explain.
    """
    x_sex = X in codes and not study.sex and 0 < sizes["complete/male"] < groups.size(sizes, "complete")
    settings: dict[str, Fact] = {"x_sex": x_sex, "samples": groups.size(sizes, "complete")}
    limbs = rings.limbs(len(verbs.members))
    summed = await verbs.compute(Computation("totals", "totals", settings, rings={"sums": limbs}))
    centre = {"centre": summed.outputs["centre"]}
    made = await verbs.compute(Computation("moments", "moments", settings, to_sites=centre, rings={"products": limbs}))
    people, samples = groups.size(sizes, "all"), groups.size(sizes, "complete")
    frame = made.outputs["frame"]
    if study.test == "linear":
        return Model(frame, None, samples, people, version, made.facts)
    null = made.outputs["null"]
    ring = rings.reals(_bound(samples), len(verbs.members))
    for iteration in range(NULL_ITERATIONS):
        step = await verbs.compute(
            Computation(
                f"null-{iteration}",
                "null",
                {**settings, "iteration": iteration},
                to_sites={"frame": frame, "null": null},
                rings={"sums": ring},
            )
        )
        null = step.outputs["null"]
        if step.facts["done"]:
            return Model(frame, null, samples, people, version, {**made.facts, **step.facts})
    raise HanseError(
        ErrorCode.INVALID_INPUT,
        f"covariates: the logistic model of the covariates alone has not converged in {NULL_ITERATIONS} iterations: "
        "they tell cases from controls without error",
    )


async def test(verbs: JointVerbs, study: Study, model: Model, key: str, settings: Settings) -> Handle:
    """A chunk's regressions: the handle of its results.

    Args:
        key: of the chunk; settings: its range, ploidy and groups.
    """
    cohorts = len(verbs.members)
    of = {"counts": rings.counts(model.people, cohorts), "sums": rings.reals(_bound(model.samples), cohorts)}
    if study.test == "linear":
        made = await verbs.compute(
            Computation(f"{key}-linear", "linear", settings, to_sites={"frame": model.frame}, rings=of)
        )
        return made.outputs["results"]
    present: dict[str, Fact] = {}
    if model.version > 1:
        present, of["present"] = {"present": True}, rings.coarse(_bound(model.samples), cohorts)
    made = await verbs.compute(
        Computation(
            f"{key}-logistic-0",
            "logistic_first",
            {**settings, **present},
            to_sites={"frame": model.frame, "null": model.null},
            rings=of,
        )
    )
    for kind in ("logistic", "firth", "penalised"):
        iteration = 1
        # The hub's functions end it: each has a limit of its own.
        while made.facts["next"] == kind:
            made = await _iterate(verbs, model, f"{key}-{kind}-{iteration}", kind, iteration, settings, made)
            iteration += 1
    return made.outputs["results"]


async def _iterate(
    verbs: JointVerbs,
    model: Model,
    key: str,
    kind: str,
    iteration: int,
    settings: Settings,
    made: JointOutcome,
) -> JointOutcome:
    cohorts = len(verbs.members)
    of = {"sums": rings.reals(_bound(model.samples), cohorts)}
    if kind == "penalised":
        of["third"] = rings.reals(_third_bound(model.samples), cohorts)
    return await verbs.compute(
        Computation(
            key,
            kind,
            {**settings, "iteration": iteration},
            to_sites={"frame": model.frame, "betas": made.outputs["betas"]},
            at_hub={"state": made.outputs["state"]},
            rings=of,
        )
    )


def _bound(samples: int) -> float:
    """Of a sum over standardised columns and genotypes: 2 N by Cauchy-Schwarz; twice that for rounding and missing
    values that are subtracted.
    """
    return 4.0 * samples + 16.0


def _third_bound(samples: int) -> float:
    """Of products of three columns by at most 0.1, where no value is above the square root of N and the products of two
    are within 2 N; and of log-likelihoods, at most 32 a person.
    """
    return samples * (0.25 * math.sqrt(samples) + 33.0) + 64.0
