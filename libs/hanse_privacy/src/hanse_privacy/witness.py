"""What others have seen of a site's ledger, so that an older copy, or none, is noticed: a budget is not refilled by it.

A ledger's head (the number of its entries, and the hash of the newest) goes into every answer that was charged, in the
site's own signature. The hub keeps the newest and hands it back with each private task. A ledger that does not hold
that entry has lost what came after its copy was made. It charges nothing more until its administrator says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.privacy import LedgerHead

MISSING, RESTORED = "missing", "restored"
"""Kinds of entries: a head that others have seen and the ledger lacks; the administrator's word on all of them."""


def signed_head(entries: int, digest: str, *, project: str, participant: str, key: SigningKey) -> LedgerHead:
    """A head in the site's signature, for one hub's project."""
    signature = key.sign(_statement(project, participant, entries, digest))
    # Fields of bytes are base64 on the wire; a model that is made of values takes them as they are.
    return LedgerHead.model_construct(entries=entries, head=digest, signature=signature)


def is_own(head: LedgerHead, *, project: str, participant: str, key: VerifyKey) -> bool:
    """Whether the site itself has signed a head: nobody else's word stops it."""
    try:
        key.verify(head.signature, _statement(project, participant, head.entries, head.head), what="ledger's head")
    except HanseError:
        return False
    return True


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


def _statement(project: str, participant: str, entries: int, digest: str) -> bytes:
    return f"hanse ledger 1\n{project}/{participant}\n{entries} {digest}".encode()
