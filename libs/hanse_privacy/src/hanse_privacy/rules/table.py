"""The table of refusals: which combinations of a job's settings do not work, why, and what to do instead."""

from __future__ import annotations

from hanse_privacy.rules.noise_rules import OF_NOISE
from hanse_privacy.rules.rule import PrivacyRule
from hanse_privacy.rules.sum_rules import OF_SUMS

RULES: tuple[PrivacyRule, ...] = (*OF_SUMS, *OF_NOISE)
