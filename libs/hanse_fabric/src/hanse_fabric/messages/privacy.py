"""Differential privacy in a task: what the site adds, and what its ledger is charged with."""

from __future__ import annotations

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.privacy import Privacy


class PrivacyTerms(Frozen):
    """The job's privacy section with the numbers that a site needs to make its noise and to charge its ledger.

    Attributes:
        privacy: the job's section.
        rounds: how many rounds the run has: what a total budget is spread over.
        round: this one, from 1.
        active: how many participants share the noise of a distributed placement.
        attempt: from 1; noise is drawn anew for each, and each is charged.
    """

    privacy: Privacy
    rounds: int = Field(ge=1)
    round: int = Field(ge=1)
    active: int = Field(ge=1)
    attempt: int = Field(default=1, ge=1)
