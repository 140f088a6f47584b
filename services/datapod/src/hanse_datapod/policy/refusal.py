"""How a site says that its policy forbids something: the rule, what was asked, what is allowed, and what to do."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError


class ForbiddenError(HanseError):
    """A refusal by a rule of the policy file; `rule` is its path in the file."""

    def __init__(self, rule: str, message: str, hint: str) -> None:
        super().__init__(ErrorCode.POLICY, message, hint=hint)
        self.rule = rule


def forbidden(rule: str, value: object, allowed: object, *, hint: str = "") -> ForbiddenError:
    """The refusal by a rule of the policy file.

    Args:
        rule: its path in the file, such as `outputs.minimum_examples`.
        value: what the task asks.
        allowed: what the rule allows; a tuple is listed.
        hint: what to do about it; by default, that the administrator decides.
    """
    shown = ", ".join(str(item) for item in allowed) if isinstance(allowed, tuple) else allowed
    return ForbiddenError(
        rule,
        f"the site's policy forbids it: {rule}: {value} is asked, allowed: {shown}",
        hint or "the site's administrator decides, in the policy file",
    )
