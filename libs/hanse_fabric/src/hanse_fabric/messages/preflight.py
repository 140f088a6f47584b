"""What a site says of a job before it is run (a task of kind CHECK): whether its data fit, what its policy would
refuse, whether its privacy budget suffices. Codes of a fixed list, and words that hold no data."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from hanse_fabric.messages.base import Frozen, Message


class FindingCode(StrEnum):
    """All that a cautious site says: two or three words about each of data, policy and budget."""

    FITS = "fits"
    UNFIT = "unfit"
    ALLOWED = "allowed"
    REFUSED = "refused"
    ENOUGH = "enough"
    SHORT = "short"
    UNTOLD = "untold"

    @property
    def about(self) -> str:
        """`data`, `policy` or `budget`."""
        return _ABOUT[self]

    @property
    def ok(self) -> bool | None:
        """Whether it speaks for the job; None: it says nothing."""
        return None if self is FindingCode.UNTOLD else self in _GOOD

    @property
    def text(self) -> str:
        """In words."""
        return _TEXTS[self]


_GOOD = frozenset({FindingCode.FITS, FindingCode.ALLOWED, FindingCode.ENOUGH})
_ABOUT = {
    FindingCode.FITS: "data", FindingCode.UNFIT: "data",
    FindingCode.ALLOWED: "policy", FindingCode.REFUSED: "policy",
    FindingCode.ENOUGH: "budget", FindingCode.SHORT: "budget", FindingCode.UNTOLD: "budget",
}  # fmt: skip
_TEXTS = {
    FindingCode.FITS: "the data are as the project declares them",
    FindingCode.UNFIT: "the site's data do not serve this job; the site's own log says why",
    FindingCode.ALLOWED: "the policy allows the job",
    FindingCode.REFUSED: "the site's policy refuses the job",
    FindingCode.ENOUGH: "the privacy budget suffices",
    FindingCode.SHORT: "the privacy budget does not suffice",
    FindingCode.UNTOLD: "the charge depends on what this site does not tell; it is known when the run begins",
}


class SiteFinding(Frozen):
    """One thing that a site says of a job.

    Attributes:
        rule: the policy's rule that refuses it, as the policy file names it; empty for what is no rule.
        text: in the site's own words, which hold no data; empty where the site is cautious: `FindingCode.text` then.
        remains: epsilon that is left, where the site's policy opens it.
    """

    code: FindingCode
    rule: str = Field(default="", pattern=r"^[a-z_.]{0,64}$")
    text: str = Field(default="", max_length=500)
    remains: float | None = Field(default=None, ge=0)

    @property
    def words(self) -> str:
        """For people."""
        said = self.text or self.code.text + (f": {self.rule}" if self.rule else "")
        return said if self.remains is None else f"{said}; epsilon {self.remains:.4g} remains"


class SiteCheck(Message):
    """A site's answer to a task of kind CHECK, in its result's payload: about data, policy and budget."""

    schema_id: ClassVar[str] = "hanse.site_check/1"

    findings: tuple[SiteFinding, ...] = Field(min_length=1, max_length=32)
