"""Sites that take part in masked sums: enrolled keys, seeds, sealed seeds, and requests for the sums of their masks."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.masking import MaskRequest, MaskShape, SealedSeed
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_privacy.masks.bound import Asked
from hanse_privacy.masks.seal import SeedNote, seal, statement

RUN = "a" * 12
SESSION = "r1-train-1"


@dataclass
class MaskedSite:
    """A site of a project, with the seed of its present answer."""

    name: str
    project: str
    key: SigningKey = field(default_factory=SigningKey.create)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def record(self, *, revoked: bool = False) -> ParticipantRecord:
        """As the coordinator keeps it."""
        return ParticipantRecord(
            project=self.project, participant=self.name, public_key=base64.b64encode(self.key.public_bytes),
            bus_key="U", enrolled_at=datetime(2026, 1, 1, tzinfo=UTC), revoked=revoked,
        )  # fmt: skip

    def sealed(
        self,
        public_key: bytes,
        *,
        run: str = RUN,
        session: str = SESSION,
        update: MaskShape | None = None,
        tally: int = 3,
        minimum: int = 3,
        roster: bytes | None = None,
        parts: bytes | None = None,
        asked: Asked | None = None,
    ) -> SealedSeed:
        """Its seed as it hands it in, signed.

        Args:
            asked: what its answer answers; None: it is of release 0.1.0.
        """
        note = SeedNote(self.seed, minimum, roster, None if asked is None else asked.work)
        request = None if asked is None else asked.request
        sealed = seal(
            public_key, note, project=self.project, run=run, session=session, participant=self.name, request=request
        )
        return self.signed(
            sealed, run=run, session=session, update=update, tally=tally, parts=parts, request=request
        )  # fmt: skip

    def signed(
        self, sealed: bytes, *, run: str = RUN, session: str = SESSION, update: MaskShape | None = None, tally: int = 3,
        parts: bytes | None = None, request: bytes | None = None,
    ) -> SealedSeed:  # fmt: skip
        """Any bytes in place of a sealed seed, under the site's signature."""
        bare = SealedSeed(
            participant=self.name, sealed=base64.b64encode(sealed), update=update, tally=tally, signature=b"",
            parts=None if parts is None else base64.b64encode(parts),
            request=None if request is None else request.hex(),
        )  # fmt: skip
        signature = self.key.sign(statement(self.project, run, session, bare))
        return bare.model_copy(update={"signature": signature})


def masked_sites(project: str, count: int) -> list[MaskedSite]:
    """Sites with names in order."""
    return [MaskedSite(f"site-{index:03}", project) for index in range(count)]


def mask_request(project: str, members: Sequence[SealedSeed], *, run: str = RUN, session: str = SESSION) -> MaskRequest:
    """The coordinator's question."""
    return MaskRequest(project=project, run=run, session=session, members=tuple(members))
