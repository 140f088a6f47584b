"""Refusals of masked sums, studies and codecs, and of what is left out of an update."""

from __future__ import annotations

from hanse_privacy.rules import sum_conditions as at
from hanse_privacy.rules.rule import PrivacyRule, masked, private, studied

OF_SUMS: tuple[PrivacyRule, ...] = (
    PrivacyRule(
        "workflow association_study",
        "privacy, any",
        "noise in the sums of every SNP would hide the small p-values that a study looks for; what leaves a site is "
        "masked sums alone",
        "leave privacy out",
        studied(at.private_study),
    ),
    PrivacyRule(
        "workflow association_study",
        "no secure_aggregation",
        "a cohort's statistics are never shown to the hub",
        "leave secure_aggregation out, or give it mode compensator or pairwise",
        studied(at.plain_study),
    ),
    PrivacyRule(
        "workflow association_study",
        "secure_aggregation.bits, bound, metrics, rounding, threshold, ...",
        "the study announces for each statistic how it is summed, exactly, and all cohorts are in every sum",
        "leave it out",
        studied(at.own_rings),
    ),
    PrivacyRule(
        "workflow association_study",
        "participants.minimum below 3 without study.few_cohorts",
        "each of two could take its own part off the sum and have the other's",
        "raise participants.minimum, or set study.few_cohorts: true where the cohorts' owners know",
        studied(at.few_cohorts),
    ),
    PrivacyRule(
        "secure_aggregation.bits 8, 16",
        "weighting examples",
        "a weight below the largest takes the few steps that such a ring has from a site's values",
        "set weighting: uniform, or secure_aggregation.bits: 32",
        masked(at.narrow_by_examples),
    ),
    PrivacyRule(
        "secure_aggregation.bits 8, 16",
        "privacy.placement distributed without secure_aggregation.rotate",
        "the shares of noise need the room, and what rounding to so few steps can add is taken off the clip",
        "set rotate: true with a Gaussian kind, bits: 32, or privacy.placement: local",
        masked(at.narrow_noise),
    ),
    PrivacyRule(
        "secure_aggregation.rotate",
        "privacy.placement distributed with a Laplace kind",
        "a rotation keeps the norm that Gaussian noise is made for, and not the sum of magnitudes",
        "leave rotate out, or set privacy.mechanism: discrete_gaussian",
        masked(at.rotated_noise),
    ),
    PrivacyRule(
        "secure_aggregation",
        "out_of_range refuse",
        "which site refuses a bound tells about its largest value, whatever the masks hide",
        "set secure_aggregation.out_of_range: clip, with a bound that covers the updates",
        masked(at.telling_refusal),
    ),
    PrivacyRule(
        "secure_aggregation",
        "strategy.reduction other than weighted_mean",
        "such reductions look at single updates, which nobody can see",
        "use weighted_mean, or do without secure_aggregation",
        masked(at.robust),
    ),
    PrivacyRule(
        "secure_aggregation with codec.up random_k",
        "strategy.sign_mask",
        "a parameter that is not sent has no sign, and would not move at all, not by the server's momentum either, "
        "which makes up for what is not sent",
        "leave codec.up out, with secure_aggregation.bits: 8 or 16, or leave strategy.sign_mask out",
        masked(at.chosen_signs),
    ),
    PrivacyRule(
        "secure_aggregation",
        "train.algorithm scaffold",
        "control variates would leave beside the masked sum, without masks",
        "use another algorithm, or do without secure_aggregation",
        masked(at.told_apart),
    ),
    PrivacyRule(
        "secure_aggregation",
        "codec.up other than random_k",
        "a masked sum adds ring elements, which look random: they cannot be packed, products of two factors (low_rank) "
        "cannot be summed, and places that each site chooses by its own values would tell of its data, and differ",
        "set codec.up: [{name: random_k, fraction: 0.1}], whose places are the same for all, or "
        "secure_aggregation.bits: 32, 16 or 8",
        masked(at.coded),
    ),
    PrivacyRule(
        "secure_aggregation",
        "codec.down other than delta",
        "a site remembers what it was asked by the model's digest: one model in two encodings would be two questions",
        "leave codec.down out, or have it lose nothing: [{name: delta}, {name: zstd}]",
        masked(at.coded_model_of_sum),
    ),
    PrivacyRule(
        "secure_aggregation",
        "codec.error_feedback",
        "a site adds what it left out once: a hub that first lets the others add theirs, without this site, finds this "
        "site's alone in the next sum",
        "leave codec.error_feedback out; a larger fraction, or a server optimizer with momentum, makes up for it",
        masked(at.remembered_choice),
    ),
    PrivacyRule(
        "secure_aggregation with codec.up random_k",
        "privacy.placement distributed with mechanism dp_ftrl, or noise oblivious, oblivious-shuffled",
        "a round's correlated noise takes back what earlier rounds added at the same places, and what sites draw for "
        "each other is made for all parameters",
        "leave codec.up out, or use mechanism discrete_gaussian, or noise: distributed-gamma",
        masked(at.chosen_noise),
    ),
    PrivacyRule(
        "privacy, any",
        "codec.down other than delta",
        "the noise is made for the parameters of the model as the site finds them in its file",
        "leave codec.down out, or have it lose nothing: [{name: delta}, {name: zstd}]; codec.up goes with noise that "
        "is made at the site",
        private(at.coded_model),
    ),
    PrivacyRule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "codec.error_feedback",
        "what is pruned is left unsaid, but of a weight that is pruned later a site would still send what its codecs "
        "had left out before: it would count as told, and take bytes",
        "leave codec.error_feedback out, or set zeros: true (fedltn), with which all weights are sent",
        at.remembered_pruning,
    ),
    PrivacyRule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "codec.up low_rank",
        "what is pruned is left unsaid, but a product of two factors has a value for every weight",
        "set codec.up: [{name: nonzero}, {name: float16}], or zeros: true (fedltn), with which all weights are sent",
        at.whole_products,
    ),
    PrivacyRule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "strategy.reduction other than overlap_mean, or strategy.sign_mask, without secure_aggregation and privacy",
        "a site that has pruned a weight would count as one that found no change: in a mean it moves by the share of "
        "the sites that keep it, by signs likewise, in a median not at all where most have pruned it",
        "set strategy: {reduction: {name: overlap_mean}} without sign_mask, or zeros: true (fedltn)",
        at.counted_pruning,
    ),
    PrivacyRule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "strategy.reduction overlap_mean with privacy.placement local",
        "noise moves every weight, so that none is left unsaid, and the noise of those who have pruned one would count "
        "as what they tell of it",
        "use weighted_mean: each site's ticket is its own with that, too",
        private(at.noise_on_pruned),
    ),
    PrivacyRule(
        "privacy.placement local",
        "codec.up nonzero",
        "noise moves every value, so that hardly one is zero and all are sent",
        "leave nonzero out; codec.up goes with noise by other codecs, such as top_k and float16",
        private(at.noise_on_zeros),
    ),
    PrivacyRule(
        "secure_aggregation.mode compensator",
        "train.algorithm fedtan",
        "the compensator would have to answer in the middle of a step, for every sum of batch statistics",
        "set secure_aggregation.mode: pairwise",
        masked(at.summed_inside),
    ),
    PrivacyRule(
        "secure_aggregation.minimum",
        "a smaller participants.minimum",
        "a round could close with fewer sites than a sum may have, and would never be summed",
        "raise participants.minimum to secure_aggregation.minimum",
        masked(at.few),
    ),
    PrivacyRule(
        "secure_aggregation.metrics",
        "a stop.metric that is not among them",
        "only the means of the listed metrics are made",
        "list the metric in secure_aggregation.metrics",
        masked(at.unsummed),
    ),
    PrivacyRule(
        "secure_aggregation.threshold",
        "a smaller participants.minimum",
        "a round of the minimum could not recover the masks of a site that drops out",
        "lower the threshold, or raise participants.minimum",
        masked(at.threshold),
    ),
    PrivacyRule(
        "strategy.reduction private_mean",
        "a job file",
        "it is the hub's own way of adding noise",
        "give the job a section privacy with placement central",
        at.reserved,
    ),
)
