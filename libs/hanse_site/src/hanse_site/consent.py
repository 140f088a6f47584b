"""What a site has agreed to: the terms that were shown to it, who has said so, and when. They lie in its home.

The digest is computed here, of the terms as they came, and never believed. A task under other terms is not the site's.
"""

from __future__ import annotations

import base64
import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Time
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.participants import Consent
from hanse_fabric.strict_json import LARGE
from hanse_schemas.terms import By, ProjectTerms, SiteConsent

AGREED, ASKED = "agreed-terms.json", "asked-terms.json"
_MOST = 20


class AgreedTerms(Frozen):
    """Terms that the site has agreed to. `by`: who has said so, `at`: when."""

    terms: ProjectTerms
    by: By
    at: Time


class Agreements(Message):
    """The content of `agreed-terms.json`, oldest first."""

    schema_id: ClassVar[str] = "hanse.agreements/1"
    limits = LARGE

    agreed: tuple[AgreedTerms, ...]


def agreements(home: Path) -> tuple[AgreedTerms, ...]:
    """All that the site has agreed to, oldest first.

    Raises:
        HanseError: INVALID_INPUT or UNKNOWN_SCHEMA for a file that is damaged.
    """
    try:
        return Agreements.decode((home / AGREED).read_bytes()).agreed
    except FileNotFoundError:
        return ()


def asked(home: Path) -> ProjectTerms | None:
    """The project's terms, as the hub has told them last; None: it has not, or there are none."""
    try:
        return ProjectTerms.decode((home / ASKED).read_bytes())
    except FileNotFoundError:
        return None


def to_agree(home: Path) -> ProjectTerms | None:
    """The terms that the hub tells and the site has not agreed to; None: there are none."""
    told = asked(home)
    return None if told is None or any(each.terms == told for each in agreements(home)) else told


def keep_asked(home: Path, terms: ProjectTerms | None) -> None:
    """Note what the hub tells.

    Raises:
        HanseError: NO_SPACE.
    """
    if terms is None:
        (home / ASKED).unlink(missing_ok=True)
    elif asked(home) != terms:
        write_durably(home / ASKED, terms.encode())


def agree(home: Path, terms: ProjectTerms, digest: str, by: str = "", clock: Clock = SYSTEM_CLOCK) -> AgreedTerms:
    """Agree to terms that were shown.

    Args:
        digest: of what was shown.
        by: who agrees; empty: who runs this.

    Raises:
        HanseError: CONFLICT where the terms are others; INVALID_INPUT; NO_SPACE.
    """
    require_digest(terms, digest)
    made = agreement(terms, by, clock)
    keep(home, made)
    return made


def agreement(terms: ProjectTerms, by: str, clock: Clock) -> AgreedTerms:
    """Made now, and not kept yet.

    Raises:
        HanseError: INVALID_INPUT for a name that is none.
    """
    try:
        return AgreedTerms(terms=terms, by=by.strip() or _whoever(), at=clock.now())
    except ValidationError:
        raise invalid("by", by[:201], "one line of 200 characters at most") from None


def keep(home: Path, made: AgreedTerms) -> None:
    """Keep an agreement among the site's; the newest of the same terms.

    Raises:
        HanseError: NO_SPACE.
    """
    others = tuple(each for each in agreements(home) if each.terms != made.terms)
    write_durably(home / AGREED, Agreements(agreed=(*others, made)[-_MOST:]).encode())


def require_digest(terms: ProjectTerms, digest: str) -> None:
    """Whether the terms are those that were shown.

    Raises:
        HanseError: CONFLICT.
    """
    if digest.strip().lower() != terms.digest:
        raise HanseError(
            ErrorCode.CONFLICT, f"accept: {digest[:80]!r} is not the digest of the project's terms, {terms.digest}",
            hint="read them as they are now (hanse site preview), and give that digest",
        )  # fmt: skip


def signed(made: AgreedTerms, participant: str, key: SigningKey) -> Consent:
    """An agreement, as the hub is told of it."""
    digest = made.terms.digest
    said = SiteConsent(
        project=made.terms.project, participant=participant, terms=digest, by=made.by, at=made.at
    )  # fmt: skip
    return Consent(terms=digest, by=made.by, at=made.at, signature=base64.b64encode(key.sign(said.canonical())))


def under(agreed: Sequence[AgreedTerms], digest: str | None, *, begun: bool = False) -> ProjectTerms | None:
    """The terms that a task is under; None where it names none, and the site has agreed to none.

    Args:
        begun: whether the task's run began here under these terms. Others that were agreed to since are for runs that
            begin: else a hub could go on under whichever let it most.

    Raises:
        HanseError: POLICY where the site has not agreed to them.
    """
    if digest is None and not agreed:
        return None
    allowed = agreed if begun else agreed[-1:]
    found = next((each.terms for each in allowed if each.terms.digest == digest), None)
    if found is None:
        names = "no terms" if digest is None else f"terms {digest}"
        older = any(each.terms.digest == digest for each in agreed)
        why = "this site has agreed to others since, before the run began here" if older else (
            "nobody has agreed to that at this site"
        )  # fmt: skip
        raise HanseError(
            ErrorCode.POLICY, f"terms: this task is under {names}, and {why}",
            hint="the site's administrator reads the project's terms, and agrees in the site's window or by: hanse "
            "site agree" if not older else "the project's owner begins the run again, under the terms of now",
        )  # fmt: skip
    return found


def _whoever() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return "the site's administrator"
