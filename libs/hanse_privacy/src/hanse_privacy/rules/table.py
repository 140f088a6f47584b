"""The table of refusals: which combinations of a job's settings do not work, why, and what to do instead."""

from __future__ import annotations

from dataclasses import dataclass

from hanse_privacy.rules import conditions as at
from hanse_privacy.rules.conditions import Condition, masked, private, studied


@dataclass(frozen=True, slots=True)
class Rule:
    """A combination that is refused.

    Attributes:
        one, other: what is combined, as the table of the documentation names it.
        reason: why not.
        hint: what to do instead.
        found: what of a job violates it (field and value), or None.
    """

    one: str
    other: str
    reason: str
    hint: str
    found: Condition


RULES: tuple[Rule, ...] = (
    Rule(
        "workflow association_study",
        "privacy, any",
        "noise in the sums of every SNP would hide the small p-values that a study looks for; what leaves a site is "
        "masked sums alone",
        "leave privacy out",
        studied(at.private_study),
    ),
    Rule(
        "workflow association_study",
        "no secure_aggregation",
        "a cohort's statistics are never shown to the hub",
        "leave secure_aggregation out, or give it mode compensator or pairwise",
        studied(at.plain_study),
    ),
    Rule(
        "workflow association_study",
        "secure_aggregation.bits, bound, metrics, rounding, threshold, ...",
        "the study announces for each statistic how it is summed, exactly, and all cohorts are in every sum",
        "leave it out",
        studied(at.own_rings),
    ),
    Rule(
        "workflow association_study",
        "participants.minimum below 3 without study.few_cohorts",
        "each of two could take its own part off the sum and have the other's",
        "raise participants.minimum, or set study.few_cohorts: true where the cohorts' owners know",
        studied(at.few_cohorts),
    ),
    Rule(
        "secure_aggregation.bits 8, 16",
        "weighting examples",
        "a weight below the largest takes the few steps that such a ring has from a site's values",
        "set weighting: uniform, or secure_aggregation.bits: 32",
        masked(at.narrow_by_examples),
    ),
    Rule(
        "secure_aggregation.bits 8, 16",
        "privacy.placement distributed without secure_aggregation.rotate",
        "the shares of noise need the room, and what rounding to so few steps can add is taken off the clip",
        "set rotate: true with a Gaussian kind, bits: 32, or privacy.placement: local",
        masked(at.narrow_noise),
    ),
    Rule(
        "secure_aggregation.rotate",
        "privacy.placement distributed with a Laplace kind",
        "a rotation keeps the norm that Gaussian noise is made for, and not the sum of magnitudes",
        "leave rotate out, or set privacy.mechanism: discrete_gaussian",
        masked(at.rotated_noise),
    ),
    Rule(
        "secure_aggregation",
        "out_of_range refuse",
        "which site refuses a bound tells about its largest value, whatever the masks hide",
        "set secure_aggregation.out_of_range: clip, with a bound that covers the updates",
        masked(at.telling_refusal),
    ),
    Rule(
        "secure_aggregation",
        "strategy.reduction other than weighted_mean",
        "such reductions look at single updates, which nobody can see",
        "use weighted_mean, or do without secure_aggregation",
        masked(at.robust),
    ),
    Rule(
        "secure_aggregation with codec.up random_k",
        "strategy.sign_mask",
        "a parameter that is not sent has no sign, and would not move at all, not by the server's momentum either, "
        "which makes up for what is not sent",
        "leave codec.up out, with secure_aggregation.bits: 8 or 16, or leave strategy.sign_mask out",
        masked(at.chosen_signs),
    ),
    Rule(
        "secure_aggregation",
        "train.algorithm scaffold",
        "control variates would leave beside the masked sum, without masks",
        "use another algorithm, or do without secure_aggregation",
        masked(at.told_apart),
    ),
    Rule(
        "secure_aggregation",
        "codec.up other than random_k",
        "a masked sum adds ring elements, which look random: they cannot be packed, products of two factors (low_rank) "
        "cannot be summed, and places that each site chooses by its own values would tell of its data, and differ",
        "set codec.up: [{name: random_k, fraction: 0.1}], whose places are the same for all, or "
        "secure_aggregation.bits: 32, 16 or 8",
        masked(at.coded),
    ),
    Rule(
        "secure_aggregation",
        "codec.down other than delta",
        "a site remembers what it was asked by the model's digest: one model in two encodings would be two questions",
        "leave codec.down out, or have it lose nothing: [{name: delta}, {name: zstd}]",
        masked(at.coded_model_of_sum),
    ),
    Rule(
        "secure_aggregation",
        "codec.error_feedback",
        "a site adds what it left out once: a hub that first lets the others add theirs, without this site, finds this "
        "site's alone in the next sum",
        "leave codec.error_feedback out; a larger fraction, or a server optimizer with momentum, makes up for it",
        masked(at.remembered_choice),
    ),
    Rule(
        "secure_aggregation with codec.up random_k",
        "privacy.placement distributed with mechanism dp_ftrl, or noise oblivious, oblivious-shuffled",
        "a round's correlated noise takes back what earlier rounds added at the same places, and what sites draw for "
        "each other is made for all parameters",
        "leave codec.up out, or use mechanism discrete_gaussian, or noise: distributed-gamma",
        masked(at.chosen_noise),
    ),
    Rule(
        "privacy, any",
        "codec.down other than delta",
        "the noise is made for the parameters of the model as the site finds them in its file",
        "leave codec.down out, or have it lose nothing: [{name: delta}, {name: zstd}]; codec.up goes with noise that "
        "is made at the site",
        private(at.coded_model),
    ),
    Rule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "codec.error_feedback",
        "what is pruned is left unsaid, but of a weight that is pruned later a site would still send what its codecs "
        "had left out before: it would count as told, and take bytes",
        "leave codec.error_feedback out, or set zeros: true (fedltn), with which all weights are sent",
        at.remembered_pruning,
    ),
    Rule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "codec.up low_rank",
        "what is pruned is left unsaid, but a product of two factors has a value for every weight",
        "set codec.up: [{name: nonzero}, {name: float16}], or zeros: true (fedltn), with which all weights are sent",
        at.whole_products,
    ),
    Rule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "strategy.reduction other than overlap_mean, or strategy.sign_mask, without secure_aggregation and privacy",
        "a site that has pruned a weight would count as one that found no change: in a mean it moves by the share of "
        "the sites that keep it, by signs likewise, in a median not at all where most have pruned it",
        "set strategy: {reduction: {name: overlap_mean}} without sign_mask, or zeros: true (fedltn)",
        at.counted_pruning,
    ),
    Rule(
        "train.algorithm lotteryfl, or fedltn without zeros",
        "strategy.reduction overlap_mean with privacy.placement local",
        "noise moves every weight, so that none is left unsaid, and the noise of those who have pruned one would count "
        "as what they tell of it",
        "use weighted_mean: each site's ticket is its own with that, too",
        private(at.noise_on_pruned),
    ),
    Rule(
        "privacy.placement local",
        "codec.up nonzero",
        "noise moves every value, so that hardly one is zero and all are sent",
        "leave nonzero out; codec.up goes with noise by other codecs, such as top_k and float16",
        private(at.noise_on_zeros),
    ),
    Rule(
        "secure_aggregation.mode compensator",
        "train.algorithm fedtan",
        "the compensator would have to answer in the middle of a step, for every sum of batch statistics",
        "set secure_aggregation.mode: pairwise",
        masked(at.summed_inside),
    ),
    Rule(
        "secure_aggregation.minimum",
        "a smaller participants.minimum",
        "a round could close with fewer sites than a sum may have, and would never be summed",
        "raise participants.minimum to secure_aggregation.minimum",
        masked(at.few),
    ),
    Rule(
        "secure_aggregation.metrics",
        "a stop.metric that is not among them",
        "only the means of the listed metrics are made",
        "list the metric in secure_aggregation.metrics",
        masked(at.unsummed),
    ),
    Rule(
        "secure_aggregation.threshold",
        "a smaller participants.minimum",
        "a round of the minimum could not recover the masks of a site that drops out",
        "lower the threshold, or raise participants.minimum",
        masked(at.threshold),
    ),
    Rule(
        "strategy.reduction private_mean",
        "a job file",
        "it is the hub's own way of adding noise",
        "give the job a section privacy with placement central",
        at.reserved,
    ),
    Rule(
        "privacy.mechanism dp_ftrl",
        "placement local",
        "the noise of a round takes back a part of what earlier rounds have added, and what each site tells alone is "
        "never added up",
        "use placement distributed with secure_aggregation, or placement central",
        private(at.local_turns),
    ),
    Rule(
        "privacy.placement distributed",
        "privacy.matrix blt",
        "sums of a buffered matrix are rounded, and how far would depend on who has which share",
        "use matrix {name: banded, bands: b}",
        private(at.shared_buffers),
    ),
    Rule(
        "privacy.mechanism dp_ftrl",
        "privacy.metrics",
        "a run with correlated noise is charged once, and metrics are charged in every round",
        "leave privacy.metrics out, or use mechanism gaussian or discrete_gaussian",
        private(at.metrics_of_turns),
    ),
    Rule(
        "privacy.mechanism dp_ftrl",
        "privacy.preparation, or a prepare that asks for sums of tables",
        "a run with correlated noise is charged once, for its rounds alone",
        "give prepare what needs no sums (scale: none, or fitted), or use mechanism discrete_gaussian",
        private(at.prepared_turns),
    ),
    Rule(
        "privacy.placement",
        "a mechanism of another placement",
        "dp_sgd and staircase noise are made at the site, shares are of Laplace, Gaussian or correlated kinds, and the "
        "hub adds gaussian, laplace or correlated (dp_ftrl) noise",
        "choose a mechanism of the placement",
        private(at.mechanism),
    ),
    Rule(
        "privacy.mechanism gaussian, discrete_gaussian, dp_sgd, dp_ftrl",
        "privacy.delta 0",
        "normal noise keeps no epsilon at delta 0",
        "give a delta above 0, or use a Laplace kind",
        private(at.no_delta),
    ),
    Rule(
        "privacy.placement distributed",
        "no secure_aggregation, or mode ring",
        "one site's share of the noise is too little to hide its update, and nothing else would hide it",
        "use secure_aggregation mode compensator or pairwise, or placement local",
        private(at.unmasked_shares),
    ),
    Rule(
        "privacy.placement central",
        "secure_aggregation",
        "the hub cannot clip updates that it cannot see",
        "use placement distributed or local",
        private(at.central_masked),
    ),
    Rule(
        "privacy.placement central",
        "strategy.reduction other than weighted_mean",
        "the noise is made for a mean: one update can move a median by more than its share",
        "use weighted_mean, or placement local",
        private(at.central_robust),
    ),
    Rule(
        "privacy.placement central",
        "strategy.sign_mask",
        "the mask is made of the signs of updates without noise",
        "leave strategy.sign_mask out, or use placement local",
        private(at.central_sign_mask),
    ),
    Rule(
        "privacy.placement distributed",
        "strategy.sign_mask",
        "the signs of updates are summed beside these, and the shares of noise are added to the updates alone",
        "leave strategy.sign_mask out, or use placement local",
        private(at.noisy_signs),
    ),
    Rule(
        "privacy, any",
        "train.algorithm fedtan, and scaffold but for mechanism dp_sgd",
        "control variates and batch statistics would leave the site without noise",
        "use another algorithm, or scaffold with mechanism dp_sgd",
        private(at.unpaid_messages),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "train.algorithm scaffold of option gradient, with momentum, with weights_average",
        "control variates are then made of more than noisy gradients, each of one weight (Noble et al., 2022)",
        "use option: drift, sgd without momentum, and no weights_average",
        private(at.unpaid_variates),
    ),
    Rule(
        "privacy, any",
        "strategy.reduction fednova, qfedavg",
        "they need numbers of each site's training, to which no noise is added",
        "use another reduction",
        private(at.unpaid_numbers),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "train.algorithm other than fedavg, its presets and scaffold; optimizer.across_rounds",
        "private training is local training of clipped gradients that begins anew in every round",
        "use fedavg or scaffold, or noise on the update (gaussian, laplace)",
        private(at.other_training),
    ),
    Rule(
        "train.clipping, weights_average, augmentation.copies",
        "no privacy.mechanism dp_sgd",
        "they are of training by single examples' gradients",
        "leave it out, or give privacy the mechanism dp_sgd",
        at.of_single_examples,
    ),
    Rule(
        "privacy.placement distributed, central",
        "weighting examples",
        "a site's weight, and with it what its data can change, would depend on its data",
        "set weighting: uniform",
        private(at.weighted),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "model.batch_norm, normalization batch (the default of ResNets and DenseNet)",
        "batch norm makes one example's gradient depend on the others of its batch, so that clipping it bounds nothing",
        "use a model without batch norm, or normalization: group",
        private(at.batches),
    ),
    Rule(
        "privacy, other mechanisms",
        "batch norm with buffers that travel",
        "the batch statistics would leave the site without noise",
        'set model.buffers: {"*": keep_local}',
        private(at.buffers),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "code",
        "site code trains by itself, and nobody could promise how it treats each example",
        "use a built-in trainer, or noise on the update (gaussian, laplace)",
        private(at.own_code),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "train.clip_norm",
        "each example's gradient is clipped to privacy.clip already",
        "leave train.clip_norm out",
        private(at.two_clips),
    ),
    Rule(
        "privacy.mechanism dp_sgd",
        "train.sample_weights",
        "each example's gradient is clipped, after which the heavier ones count as the others",
        "leave train.sample_weights out",
        private(at.weights_of_rows),
    ),
    Rule(
        "privacy.metrics",
        "privacy.placement central",
        "the hub, which adds the noise there, reads each site's metrics as they are",
        "leave privacy.metrics out, or use placement local or distributed",
        private(at.central_metrics),
    ),
    Rule(
        "privacy.metrics of others than loss, accuracy, mse",
        "privacy.mechanism dp_sgd",
        "one example is hidden there in means over examples, which others are not",
        "ask for loss, accuracy or mse",
        private(at.metrics_of_groups),
    ),
    Rule(
        "privacy.metrics",
        "a stop.metric that is neither among its bounds nor counted",
        "sites with privacy.required tell no others",
        "give the metric a bound in privacy.metrics, or take one that evaluate.metrics counts",
        private(at.untold_metric),
    ),
    Rule(
        "privacy.noise",
        "placements other than distributed, Gaussian kinds",
        "the shares of these modes add up to Laplace noise within a masked sum",
        "leave privacy.noise out",
        private(at.shares),
    ),
    Rule(
        "privacy.placement distributed with a Laplace kind",
        "no privacy.noise",
        "there are several ways to make its shares, against different coalitions",
        "set privacy.noise: distributed-gamma, or local-laplace",
        private(at.no_shares),
    ),
    Rule(
        "privacy.placement distributed",
        "participants.quorum below 1 without colluding",
        "the shares of those who drop out are missing from the noise",
        "set quorum: 1, or colluding to how many may be missing, or noise: local-laplace",
        private(at.dropouts),
    ),
    Rule(
        "privacy.placement distributed",
        "secure_aggregation.rounding stochastic",
        "rounding up could make the clipped update longer than the clipping norm",
        "leave rounding at nearest",
        private(at.rounding),
    ),
    Rule(
        "privacy.noise oblivious, oblivious-shuffled",
        "secure_aggregation mode pairwise",
        "the compensator shuffles, and the answers of mode pairwise have no room for others' noise",
        "use mode compensator, or distributed-gamma",
        private(at.third_party),
    ),
    Rule(
        "privacy.noise oblivious, oblivious-shuffled",
        "secure_aggregation.compensators",
        "who chooses of the sites' noise needs all of their seeds, which no single one of several compensators has",
        "leave secure_aggregation.compensators and needed out, or use distributed-gamma",
        private(at.shared_choice),
    ),
    Rule(
        "privacy.colluding",
        "noise without shares, or fewer than two other sites",
        "it enlarges the shares of distributed-gamma and of Gaussian noise, and at least two honest ones must be left",
        "lower colluding, or use distributed-gamma",
        private(at.colluding),
    ),
    Rule(
        "privacy.scale literal",
        "mechanisms other than distributed Laplace",
        "it is the scale that Mugunthan (2022) prints for distributed Laplace noise",
        "leave privacy.scale out",
        private(at.literal),
    ),
    Rule(
        "privacy.adaptive_clip",
        "placements other than central, mechanisms other than gaussian",
        "the norm is moved by a noisy count over all sites, which the hub makes",
        "leave privacy.adaptive_clip out",
        private(at.adaptive),
    ),
    Rule(
        "privacy.site_epsilon",
        "placements other than local",
        "all sites share the noise of a sum",
        "use placement local, or one epsilon for all",
        private(at.per_site),
    ),
    Rule(
        "privacy.site_epsilon",
        "values that are no epsilon",
        "a number above 0 and at most 1e6 was expected: no noise keeps an epsilon of 0",
        "raise it, or leave the site out of privacy.site_epsilon, whose epsilon is that of the job then",
        private(at.no_site_epsilon),
    ),
    Rule(
        "privacy.matrix, min_separation",
        "rounds that they do not fit",
        "a matrix has at most as many bands as lie between two turns of a site, and these within the run",
        "lower bands, buffers or min_separation, or raise rounds",
        private(at.unfit_matrix),
    ),
    Rule(
        "privacy.min_separation",
        "participants.fraction above one over it",
        "those who took part in a round rest in the next ones, and too few would be left",
        "lower participants.fraction or min_separation",
        private(at.too_many),
    ),
    Rule(
        "privacy.mechanism dp_ftrl",
        "workflows other than federated_averaging",
        "it is this workflow that gives each site its turns",
        "leave workflow out, or use mechanism gaussian",
        private(at.unknown_turns),
    ),
)
