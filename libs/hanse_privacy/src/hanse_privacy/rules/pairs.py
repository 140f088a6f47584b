"""The second half of the table: combinations that work and must go on working."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A combination that works, and why."""

    one: str
    other: str
    reason: str


LEGAL: tuple[Pair, ...] = (
    Pair("secure_aggregation", "weighting examples", "weights are in the ring and masked, as are the examples' counts"),
    Pair("secure_aggregation", "strategy.optimizer, any", "they see the mean only"),
    Pair(
        "secure_aggregation",
        "strategy.sign_mask",
        "the signs are summed under masks beside the updates, in a ring of 8 bits for up to 127 sites and of 16 for "
        "more; where all sites agree, whoever sees the sums knows each one's sign",
    ),
    Pair(
        "secure_aggregation with privacy.placement local",
        "strategy.sign_mask",
        "the signs are those of updates that are private already",
    ),
    Pair(
        "secure_aggregation.bits 8, 16",
        "secure_aggregation.rounding stochastic",
        "sums of few steps have no bias, and are those of the quantized values, exactly",
    ),
    Pair(
        "secure_aggregation",
        "codec.up random_k",
        "the places follow from the job's seed and the round, the same for all sites: a masked update is as small as "
        "what is summed",
    ),
    Pair(
        "secure_aggregation with codec.up random_k",
        "privacy.placement distributed, independent noise",
        "a part of a clipped update is within the clip, and each place that is summed has its noise; that places are "
        "chosen at random is known to all, so no amplification is claimed",
    ),
    Pair(
        "train.algorithm fedltn, lotteryfl",
        "strategy.reduction overlap_mean, codec.up nonzero",
        "what is pruned is left unsaid, takes no bytes, and does not count in the mean",
    ),
    Pair(
        "train.algorithm fedltn with zeros",
        "strategy.reduction weighted_mean",
        "a pruned weight counts as zero, as the paper prints it; the update is whole",
    ),
    Pair(
        "secure_aggregation",
        "train.algorithm fedltn, lotteryfl",
        "who keeps a weight is hidden, so that it moves by the share of the sites that do, or counts as zero (zeros)",
    ),
    Pair(
        "privacy.placement local",
        "train.algorithm fedltn, lotteryfl, with weighted_mean",
        "the update is noisy at every weight, and as large as the model; the ticket stays at the site",
    ),
    Pair("secure_aggregation", "batch norm", "averaged and pooled buffers are sums too"),
    Pair("secure_aggregation", "code", "what site code returns is masked as any update"),
    Pair(
        "secure_aggregation",
        "participants.fraction, quorum below 1",
        "a sum is of those who answered, the minimum at least",
    ),
    Pair(
        "secure_aggregation pairwise, ring",
        "train.algorithm fedtan",
        "its sums are masked among all who take part, and are done again by the same sites or not at all",
    ),
    Pair("secure_aggregation", "initial_model", "the first model is no secret"),
    Pair("secure_aggregation", "privacy.placement local", "the update is made private first and masked then"),
    Pair(
        "secure_aggregation compensator, pairwise",
        "privacy.placement distributed",
        "the shares of noise add up within the sum",
    ),
    Pair(
        "secure_aggregation compensator",
        "privacy.noise oblivious, oblivious-shuffled",
        "sites, or the compensator, choose from what others drew; privacy.md says what that resists",
    ),
    Pair(
        "privacy.placement local",
        "strategy.reduction median, krum, norm_clipping, ...",
        "whatever is made of private updates is private",
    ),
    Pair("privacy.placement local", "weighting examples", "the weights are not hidden: the report says so"),
    Pair("privacy, any", "strategy.optimizer, any", "whatever is made of private sums is private"),
    Pair("privacy, any", "initial_model", "it is covered only as far as it was trained privately itself"),
    Pair(
        "privacy.mechanism dp_ftrl",
        "participants.fraction of at most 1/min_separation",
        "who has rested is sampled, and no randomness of that is counted on",
    ),
    Pair(
        "privacy.mechanism dp_ftrl, placement distributed",
        "secure_aggregation compensator, pairwise",
        "all members add shares of the noise in every round, those who rest as well",
    ),
    Pair("privacy, any", "participants.fraction below 1", "who is sampled is known, so no amplification is claimed"),
    Pair(
        "privacy.mechanism dp_sgd",
        "train.optimizer adam, momentum, weight decay, dropout",
        "they see noisy gradients only",
    ),
    Pair(
        "privacy.mechanism dp_sgd",
        "train.schedule, clipping, augmentation, weights_average",
        "rates depend on no data; each example's gradient keeps to the clip, whatever it is the mean of",
    ),
    Pair(
        "privacy.mechanism dp_sgd",
        "train.algorithm scaffold of option drift (DP-SCAFFOLD)",
        "a control variate is made of updates that have their noise, so it tells nothing more (Noble et al., 2022)",
    ),
    Pair(
        "privacy, mechanisms on the update",
        "train.algorithm fedprox, moon, ditto, fedrep, ...",
        "only the update leaves",
    ),
    Pair("privacy, mechanisms on the update", "code", "noise is added to what site code returns"),
    Pair(
        "privacy, mechanisms on the update",
        "batch norm with keep_local buffers",
        "the statistics stay at the site",
    ),
)
