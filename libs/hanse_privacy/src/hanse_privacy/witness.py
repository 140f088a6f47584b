"""What others have seen of a site's logs, so that an older copy, or none, is noticed: a budget is not refilled by it.

A ledger's head (the number of its entries, and the hash of the newest) goes into every answer that was charged, in the
site's own signature. The hub keeps the newest and hands it back with each private task. A ledger that does not hold
that entry has lost what came after its copy was made. It charges nothing more until its administrator says why.

The same is done with the log of what left: its head goes beside every answer, and comes back beside every task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.privacy import LedgerHead

MISSING, RESTORED = "missing", "restored"
"""Kinds of entries: a head that others have seen and the ledger lacks; the administrator's word on all of them."""


Kept = Literal["ledger", "outbox"]
HEADER = "Hanse-Outbox"
"""Of a message: the head of the participant's log of what left, in its signature."""
_HEADER_BYTES = 1024


def signed_head(
    entries: int, digest: str, *, project: str, participant: str, key: SigningKey, of: Kept = "ledger"
) -> LedgerHead:
    """A head in the site's signature, for one hub's project."""
    signature = key.sign(_statement(of, project, participant, entries, digest))
    # Fields of bytes are base64 on the wire; a model that is made of values takes them as they are.
    return LedgerHead.model_construct(entries=entries, head=digest, signature=signature)


def is_own(head: LedgerHead, *, project: str, participant: str, key: VerifyKey, of: Kept = "ledger") -> bool:
    """Whether the site itself has signed a head: nobody else's word stops it."""
    try:
        said = _statement(of, project, participant, head.entries, head.head)
        key.verify(head.signature, said, what=f"{of}'s head")
    except HanseError:
        return False
    return True


def beside(head: LedgerHead | None) -> dict[str, str]:
    """The header that carries a head beside a message."""
    return {} if head is None else {HEADER: head.model_dump_json()}


def found_beside(headers: Mapping[str, str]) -> LedgerHead | None:
    """The head that came beside a message; None where there is none that can be read."""
    text = headers.get(HEADER, "")
    try:
        return LedgerHead.model_validate_json(text) if 0 < len(text) <= _HEADER_BYTES else None
    except ValidationError:
        return None


@dataclass
class Witness:
    """The entries of a ledger, by place, and the heads that it was found to lack."""

    _hashes: list[str] = field(default_factory=list)
    _missing: dict[tuple[int, str], bool] = field(default_factory=dict)
    """By head: whether the administrator has said why it is missing."""

    def add(self, entry: Mapping[str, Any], digest: str) -> bool:
        """Take in an entry of the ledger, with its hash; True for one that is this module's, and no charge."""
        self._hashes.append(digest)
        if entry["what"] == MISSING:
            self._missing.setdefault((entry["entries"], entry["head"]), False)
        elif entry["what"] == RESTORED:
            self._missing = dict.fromkeys(self._missing, True)
        return entry["what"] in (MISSING, RESTORED)

    @property
    def entries(self) -> int:
        """Of the ledger."""
        return len(self._hashes)

    def lacks(self, head: LedgerHead) -> bool:
        """Whether the ledger does not hold a head, which nobody has noted yet."""
        held = head.entries <= len(self._hashes) and self._hashes[head.entries - 1] == head.head
        return not held and (head.entries, head.head) not in self._missing

    def require_whole(self) -> None:
        """Refuse to charge a ledger that lacks what others have seen of it.

        Raises:
            HanseError: POLICY.
        """
        if all(self._missing.values()):
            return
        raise HanseError(
            ErrorCode.POLICY,
            "the site's privacy ledger is older than what it has signed before, so what is spent is not known",
            hint="the site's administrator restores the newest copy, or says why there is none: "
            "python -m hanse_datapod ledger-restored",
        )


def _statement(of: Kept, project: str, participant: str, entries: int, digest: str) -> bytes:
    return f"hanse {of} 1\n{project}/{participant}\n{entries} {digest}".encode()
