"""What a run guarantees, in words: what is hidden, from whom, by how much, and what is not covered. Loads no numpy.

The sentences promise what the sites' ledgers charge (`accounting.terms` says how the sensitivity is counted), never
more: where an accountant would find less, the closed form that stands here is the larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_privacy.accounting.accountant import delta_of_alike
from hanse_privacy.accounting.parts import share_of
from hanse_privacy.accounting.several import filtered_epsilon, normal_and_pure, rho_of_normal
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.correlated.sensitivity import sensitivity
from hanse_privacy.noise.gaussian import gaussian_epsilon
from hanse_privacy.noise.labels import coalitions, law_in_words
from hanse_schemas.job import Job
from hanse_schemas.metrics import COUNTED
from hanse_schemas.secure_aggregation import SecureAggregation

_GAUSSIAN = ("gaussian", "discrete_gaussian")
_NO_MASKS = "No masks: mode ring is for comparisons, and the hub sees every cohort's statistics."
_DRAWN = "but for 2^-50, which drawing up to 2^50 numbers of noise adds"


@dataclass(frozen=True, slots=True)
class Report:
    """A run's guarantee.

    Attributes:
        unit: what one unit of data is, that is hidden.
        adversary: from whom.
        guarantee: epsilon and delta, over the whole run.
        noise: what the noise in a sum of shares really is; empty where each site, or the hub, adds its own.
        not_covered: what the numbers do not speak of, a sentence each.
    """

    unit: str
    adversary: str
    guarantee: str
    noise: str
    not_covered: tuple[str, ...]

    def text(self) -> str:
        """As it stands in the run's record."""
        said = [f"Hidden: {self.unit}.", f"From: {self.adversary}.", f"Guarantee: {self.guarantee}."]
        if self.noise:
            said.append(f"Noise in each coordinate of a round's sum: {self.noise}.")
        return "\n".join([*said, "Not covered:", *(f"- {item}" for item in self.not_covered)])


def describe(job: Job, *, active: int | None = None, unit: str | None = None) -> str:
    """The guarantee of a run in words; for a job without a section `privacy`, that there is none.

    Args:
        active: how many sites take part in a round; None: the job's minimum.
        unit: column of the project's schema that says whose an example is.
    """
    if job.privacy is None:
        return _without(job)
    return report(job, job.privacy, active=active or job.participants.minimum, unit=unit).text()


def report(job: Job, privacy: Privacy, *, active: int, unit: str | None = None) -> Report:
    """The guarantee of a run with a section `privacy`."""
    return Report(
        unit=_unit(privacy, unit),
        adversary=_adversary(job, privacy, active),
        guarantee=_guarantee(job, privacy, active),
        noise=law_in_words(privacy, active) if privacy.placement == "distributed" else "",
        not_covered=tuple(_not_covered(job, privacy, unit)),
    )


def run_epsilon(privacy: Privacy, rounds: int) -> float | None:
    """Epsilon of all rounds at the section's delta, each done once; None where it depends on each site's data."""
    if privacy.epsilon is not None:
        return privacy.epsilon
    if privacy.noise_multiplier is None or privacy.mechanism in ("dp_sgd", "staircase"):
        return None
    matrix = matrix_of(privacy, rounds)
    if matrix is not None and privacy.min_separation is not None:
        change = 2 * sensitivity(matrix, rounds=rounds, separation=privacy.min_separation)
        delta = delta_of_alike(privacy.delta)
        return gaussian_epsilon(privacy.noise_multiplier / change, delta) if delta else math.inf
    noise = privacy.noise_multiplier / 2  # in sensitivities, which are twice the clip
    if privacy.mechanism in _GAUSSIAN:
        delta = delta_of_alike(privacy.delta)
        return gaussian_epsilon(noise / math.sqrt(rounds), delta) if delta else math.inf
    return rounds / noise


def preparation_epsilon(privacy: Privacy) -> float:
    """What a table's preparation costs where the job says it by a noise multiplier, at the section's delta."""
    multiplier = None if privacy.preparation is None else privacy.preparation.noise_multiplier
    if multiplier is None:
        return 0.0
    if privacy.mechanism not in ("dp_sgd", *_GAUSSIAN):
        return 1.0 / multiplier
    delta = delta_of_alike(privacy.delta)
    return gaussian_epsilon(multiplier, delta) if delta else math.inf


def whole_epsilon(job: Job) -> float | None:
    """The most that a run charges to a site's budget, also to one that unlike runs are charged to, each step done once:
    training, with preparation and metrics.

    None without a section `privacy`, and where a site's ledger alone can say: where it depends on the site's number of
    examples or on the model's size, also because its releases are of several kinds, or where the literal scale is
    charged as what it is.
    """
    privacy, added = job.privacy, _sum(job)
    if privacy is None or added is None or not of_several_kinds(job, privacy):
        return added
    parted = _normal_and_metrics(job, privacy)
    if parted is None:
        return None
    rho, each, many = parted
    charged = filtered_epsilon(rho, each, many, privacy.delta)
    return max(added, charged) if math.isfinite(charged) else None


def planned_epsilon(job: Job) -> float | None:
    """What a run's plan costs at most in a budget that nothing else is charged to; None as for `whole_epsilon`, but not
    because releases are of several kinds, which cost no more than their sum."""
    privacy, added = job.privacy, _sum(job)
    if privacy is None or added is None or not of_several_kinds(job, privacy):
        return added
    parted = _normal_and_metrics(job, privacy)
    if parted is None:
        return added
    rho, each, many = parted
    return min(added, normal_and_pure(rho, {each: many}, delta_of_alike(privacy.delta)))


def _sum(job: Job) -> float | None:
    """Of the epsilons of a run's parts; None where that depends on each site."""
    privacy = job.privacy
    if privacy is None or (privacy.placement == "distributed" and privacy.scale == "literal"):
        return None
    epsilon = run_epsilon(privacy, job.rounds)
    if epsilon is None or not math.isfinite(epsilon):
        return None
    added = max([epsilon, *privacy.site_epsilon.values()]) + preparation_epsilon(privacy)
    if privacy.metrics is not None:
        added += answers(job, privacy) * privacy.metrics.epsilon
    return added


def of_several_kinds(job: Job, privacy: Privacy) -> bool:
    """Whether a run's releases are of several kinds, one of them normal noise: a ledger adds them up by the run's plan
    (`accounting.plan`), for less than their sum."""
    told = privacy.metrics is not None and answers(job, privacy) > 0
    if privacy.mechanism == "dp_sgd":  # of samples, which the preparation's noise is not
        return told or privacy.preparation is not None
    return told and privacy.mechanism in (*_GAUSSIAN, "dp_ftrl")


def _normal_and_metrics(job: Job, privacy: Privacy) -> tuple[float, float, int] | None:
    """Rho of all normal noise of a run, epsilon of each answer's metrics, and how many there are; None where that
    depends on each site."""
    if privacy.mechanism == "dp_sgd" or privacy.metrics is None:
        return None
    before = preparation_epsilon(privacy)
    if privacy.epsilon is None:
        rounds = run_epsilon(privacy, job.rounds)
        parts = [(rounds, privacy.delta), (before, privacy.delta)]
    else:
        share, most = share_of(privacy), max([privacy.epsilon, *privacy.site_epsilon.values()])
        parts = [((1 - share) * most, (1 - share) * privacy.delta), (share * most, share * privacy.delta)]
    if any(epsilon is None or not math.isfinite(epsilon) for epsilon, _ in parts):
        return None
    rho = math.fsum(rho_of_normal(epsilon, delta_of_alike(delta)) for epsilon, delta in parts if epsilon)
    return rho, privacy.metrics.epsilon, answers(job, privacy)


def answers(job: Job, privacy: Privacy) -> int:
    """How many of a site's answers in a run have metrics that are charged, each step done once."""
    every = job.evaluate.every
    evaluations = -(-job.rounds // every) if every else 0
    return evaluations if privacy.mechanism == "dp_sgd" else job.rounds + evaluations


def _unit(privacy: Privacy, unit: str | None) -> str:
    match privacy.mechanism:
        case "dp_sgd" if unit is not None:
            return (
                f"whether any one {unit}, with all rows of that {unit}, was in a site's training data (added or "
                f"removed){_parted_in_words(unit)}"
            )
        case "dp_sgd":
            parted = _parted_in_words("example")
            return f"whether any one example was among a site's training data (added or removed){parted}"
        case "dp_ftrl":
            return (
                "everything that one site contributes to the run, in rounds at least "
                f"{privacy.min_separation} apart, against any other contributions to them (not that it takes part)"
            )
        case "gaussian" | "laplace" | "staircase" | "discrete_gaussian" | "discrete_laplace":
            return (
                "everything that one site contributes to a round, against any other contribution (not that it takes "
                "part)"
            )
        case unknown:
            assert_never(unknown)


def _adversary(job: Job, privacy: Privacy, active: int) -> str:
    match privacy.placement:
        case "local":
            return "everybody but the site itself: the hub, the other sites, and whoever sees updates or models"
        case "central":
            return (
                "whoever sees the models only: the other sites and model users; the hub's aggregator and whoever runs "
                "it see plain updates and are trusted"
            )
        case "distributed":
            resists, defeated = coalitions(privacy, active)
            sums, helper = job.secure_aggregation, ""
            if sums is not None and sums.mode == "compensator":
                helper = (
                    f"; the aggregator together with {_summing(sums)} sees single updates with shares of noise only"
                )
            against = f"; not from {defeated}" if defeated else ""
            return f"{resists}{against}{helper}"
        case unknown:
            assert_never(unknown)


def _guarantee(job: Job, privacy: Privacy, active: int) -> str:
    rounds = f"all {job.rounds} rounds together, each done once" if job.rounds > 1 else "the one round, done once"
    # By `noise.exact`, at any epsilon up to 25; of a larger delta, accountants take it off (`accountant.SAMPLING`).
    delta = f"delta {privacy.delta:g}" if privacy.delta else f"delta 0 ({_DRAWN})"
    epsilon = run_epsilon(privacy, job.rounds)
    if epsilon is None:
        return (
            f"noise multiplier {privacy.noise_multiplier:g}; epsilon depends on each site's number of examples or on "
            f"the model's size, and each site's ledger computes it"
        )
    if privacy.placement == "distributed" and privacy.scale == "literal":
        return (
            f"the literal scale (Mugunthan, 2022): epsilon {epsilon:g} is as printed there, for a mean; the true one "
            f"of each round's sum is larger by the number of sites in it, {active} times with {active} sites; "
            f"each site's ledger charges the true one"
        )
    own = ""
    if privacy.site_epsilon:
        named = ", ".join(f"{name}: {value:g}" for name, value in sorted(privacy.site_epsilon.items()))
        own = f"; sites with an epsilon of their own: {named}"
    before = ""
    if privacy.preparation is not None and privacy.preparation.share is not None:
        before = f", and the preparation of the tables, which is charged {privacy.preparation.share:.4g} of both"
    return f"epsilon {epsilon:.4g} at {delta} for {rounds}{before}{own}"


def _not_covered(job: Job, privacy: Privacy, unit: str | None) -> list[str]:
    said = [
        "Steps that were done again, and other runs on the same data: each site's ledger adds them up and is the "
        "authority.",
        "The choice of hyper-parameters, clipping norm and number of rounds, where it was made on the same data.",
    ]
    if privacy.preparation is not None and privacy.preparation.noise_multiplier is not None:
        said.append(
            "By what is said above, the preparation of the tables: its sums have a noise multiplier of "
            f"{privacy.preparation.noise_multiplier:g}, which costs epsilon {preparation_epsilon(privacy):.4g}, on top."
        )
    if of_several_kinds(job, privacy):
        said.append(_planned_in_words(job))
    if privacy.metrics is not None:
        said.append(_metrics_in_words(job, privacy, privacy.metrics))
    elif job.evaluate.every:
        masked = job.secure_aggregation is not None
        how = "only their sums over sites are seen, but" if masked else "they leave each site in the clear, and"
        said.append(
            f"Evaluation metrics on the sites' test data: {how} no noise is added to them. So a site whose policy has "
            "privacy.required refuses to evaluate, unless its privacy.uncovered names evaluation; with such sites, "
            "give the metrics noise by privacy.metrics, or set evaluate: {every: 0}."
        )
    if job.secure_aggregation is None and privacy.placement != "distributed":
        said.append(
            "The number of examples of each site, and how long it took: sites whose policy has privacy.required tell "
            "neither (their updates weigh 1), unless privacy.uncovered names examples, seconds. That a site took part."
        )
    if job.stop is not None and privacy.metrics is None:
        said.append("Early stopping, which follows those metrics.")
    if job.initial_model is not None:
        said.append("The data that the initial model was trained on.")
    if privacy.mechanism == "dp_sgd" and unit is None:
        said.append(
            "Groups of examples of one person: epsilon grows with their number (a schema with a unit hides them)."
        )
    if privacy.mechanism == "dp_sgd":
        said.append(_before_in_words(unit or "example"))
    if privacy.mechanism == "dp_sgd" and unit is not None:
        said.append(f"A {unit} with rows at several sites, or under several names: their epsilons add up.")
    if privacy.placement == "central":
        said.append("The hub itself, and whoever breaks into it.")
        said.append("The means of the sites' training metrics, to which no noise is added.")
    return said


def _before_in_words(one: str) -> str:
    """What a site's datapod is, and what it does with its data, is not known here, so it is said under a condition."""
    return (
        "A site that sets test data aside itself (test_fraction), as long as its datapod is of a release before 0.2.0: "
        f"with one {one} more, others are set aside there, which is not within the epsilon above."
    )


def _parted_in_words(one: str) -> str:
    """That the unit is hidden holds for all that a site does with its data before it trains."""
    return (
        f"; also where a site sets test data aside itself (test_fraction), for each {one} stands on its side by a "
        "keyed hash of its own, and one more or fewer moves no other"
    )


def _planned_in_words(job: Job) -> str:
    planned, beside = planned_epsilon(job), whole_epsilon(job)
    much = (
        "by how many examples a site has, and no more than their sum (hanse run check --sites asks each site)"
        if planned is None
        else f"at most epsilon {planned:.4g}"
    )
    most = "mostly 1.3 to 2.5 times as much" if beside is None else f"epsilon {beside:.4g} of this one"
    return (
        "What a site's ledger charges: the run's releases are of several kinds, of which it says before the first how "
        f"many there will be, so that the ledger adds them up by that plan: {much}. In a budget that unlike runs are "
        f"charged to, too, a filter adds all of them up, and tells more: {most}."
    )


def _metrics_in_words(job: Job, privacy: Privacy, asked: PrivateMetrics) -> str:
    names = [f"{name} (to {bound:g})" for name, bound in sorted(asked.bounds.items())]
    counted = [name for name in job.evaluate.named if name in COUNTED]
    of = [f"{', '.join(names)}, which are cut"] * bool(names) + [f"counts for {', '.join(counted)}"] * bool(counted)
    what = "each evaluation" if privacy.mechanism == "dp_sgd" else "each training and each evaluation"
    many = answers(job, privacy)
    return (
        f"By the epsilon above, metrics: {'; '.join(of)}. They have noise of their own, which costs epsilon "
        f"{asked.epsilon:g} for {what} of a site, {many * asked.epsilon:g} for {many} of them, on top; each site's "
        "ledger adds it up."
    )


def _summing(sums: SecureAggregation) -> str:
    """Who takes masks off."""
    if sums.compensators is None:
        return "the compensator"
    return f"{sums.needed} of the compensators {', '.join(sums.compensators)}"


def _study(job: Job) -> str:
    sums = job.secure_aggregation
    if sums is None:
        return _NO_MASKS
    match sums.mode:
        case "ring":
            return _NO_MASKS
        case "compensator":
            unless = f", unless the aggregator and {_summing(sums)} pool what they see"
        case "pairwise":
            unless = ", unless all others pool what they know"
        case unknown:
            assert_never(unknown)
    return (
        "No genotype, phenotype or covariate leaves a site. The hub sees which SNPs each cohort has, and sums of "
        f"counts and statistics over all cohorts, of no fewer than {job.participants.minimum}, but no single cohort's"
        f"{unless}. "
        "There is no differential privacy: what the results tell, by SNP, of all cohorts together is not limited."
    )


def _without(job: Job) -> str:
    sums = job.secure_aggregation
    if job.study is not None:
        return _study(job)
    if sums is None:
        return "No differential privacy: the hub sees every site's update, and models may tell of single examples."
    if sums.mode == "ring":
        return "No differential privacy, and no masks: mode ring is for comparisons, and the hub sees every update."
    pooled = f"the aggregator and {_summing(sums)} pool what they see"
    who = pooled if sums.mode == "compensator" else f"{sums.threshold or 'two thirds'} of the sites help it"
    return (
        f"No differential privacy: the hub sees sums of at least {sums.minimum} sites' updates and no single one, "
        f"unless {who}. What a sum or a model tells of single examples is not limited."
    )
