"""All the sites of a run and its coordinator in one process, step by step: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_privacy.masks.bound import Asked
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.pairwise.coordination import (
    Orders,
    Unmasking,
    ask_unmask,
    order_masks,
    read_adverts,
    share_request,
)
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_privacy.pairwise.recovering import Recovered, recover
from hanse_privacy.pairwise.site import MaskingNote, PairwiseSite

SESSION = "r1-train"
ASKED = Asked(request=b"R" * 32, work=b"W" * 32)


NO_PART = {
    "one twice": ("site-0", "site-1", "site-1", "site-2", "site-3"),
    "unsorted": ("site-0", "site-2", "site-1", "site-3", "site-4"),
    "a stranger": ("site-0", "site-1", "site-2", "site-3", "site-9"),
}
"""Lists that are no sorted part of the five. One who is named twice would count twice toward the threshold."""


class Rehearsal:
    """Sites with folders and keys of their own, and the coordinator's steps among any of them.

    Args:
        folder: for the sites' state.
        names: of the sites.
        pinned: whether the sites pin the roster of all of them.
        beside: sessions that may be under way at once, as `PairwiseSite` has it.
        asked: of all sites; None: by a hub of release 0.1.0.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        *,
        project: str = "rehearsal",
        run: str = "rehearsal000",
        minimum: int = 3,
        threshold: int | None = None,
        pinned: bool = True,
        beside: int = 0,
        asked: Asked | None = ASKED,
    ) -> None:
        self.asked = asked
        self.project, self.run, self.minimum, self.threshold = project, run, minimum, threshold
        self.folder, self.beside = folder, beside
        self.signing = {name: SigningKey.create() for name in sorted(names)}
        self.identities = {name: key.public_bytes for name, key in self.signing.items()}
        self._pin = roster_digest(self.identities.values()) if pinned else None
        self.sites = {name: self.started(name) for name in self.signing}

    def started(self, name: str) -> PairwiseSite:
        """The site's part as a process that just started has it: from its folder."""
        return PairwiseSite(
            self.folder / name,
            self.signing[name],
            project=self.project,
            participant=name,
            minimum=self.minimum,
            roster=self._pin,
            beside=self.beside,
        )

    def open(self, session: str, names: Collection[str] | None = None) -> ShareRequest:
        """ADVERTISE among `names`, and the session's request."""
        chosen = sorted(self.sites if names is None else names)
        adverts = {name: self.sites[name].advertise(self.run) for name in chosen}
        read = read_adverts(self.project, self.run, self.identities, adverts)
        return share_request(
            self.project,
            self.run,
            session,
            read.members,
            threshold=self.threshold,
            minimum=self.minimum,
            roster=self.identities.values(),
            work=None if self.asked is None else self.asked.work,
        )

    def share(self, request: ShareRequest, names: Collection[str] | None = None) -> Orders:
        """SHARE, answered by `names`."""
        payload = request.encode()
        answering = request.names if names is None else sorted(names)
        answers = {
            name: self.sites[name].share(self.run, payload, session=request.session) for name in answering
        }  # fmt: skip
        return order_masks(request, answers)

    def mask(
        self, request: ShareRequest, orders: Orders, names: Collection[str] | None = None
    ) -> dict[str, MaskingNote]:
        """The masks of TRAIN, for those who get so far."""
        answering = orders.members if names is None else sorted(names)
        return {
            name: self.sites[name].masks(
                self.run,
                orders.payloads[name],
                session=request.session,
                task=f"{request.session}/{name}",
                asked=self.asked,
            )
            for name in answering
        }

    def unmask(
        self,
        request: ShareRequest,
        orders: Orders,
        notes: Mapping[str, MaskingNote],
        names: Collection[str] | None = None,
    ) -> tuple[Unmasking, Recovered]:
        """UNMASK, answered by `names`, and what comes of it.

        Args:
            notes: of those whose answers are in the sum.
        """
        asked = ask_unmask(request, orders.members, {name: note.payload for name, note in notes.items()})
        answering = asked.survivors if names is None else sorted(names)
        revealed = {
            name: self.sites[name].unmask(self.run, asked.payload, session=request.session) for name in answering
        }  # fmt: skip
        return asked, recover(request, orders.answers, asked.survivors, revealed, asked.asked)


@dataclass(frozen=True, slots=True)
class Session:
    """A session whose members have shared, and those of `notes` have masked."""

    all_sites: Rehearsal
    request: ShareRequest
    orders: Orders
    notes: dict[str, MaskingNote]

    def asked(self, *survivors: str) -> bytes:
        return ask_unmask(
            self.request, self.orders.members, {name: self.notes[name].payload for name in survivors}
        ).payload

    def unmask(self, name: str, payload: bytes) -> bytes:
        return self.all_sites.sites[name].unmask(self.all_sites.run, payload, session=SESSION)

    def masks(self, name: str, payload: bytes, *, task: str = "", asked: Asked | None = ASKED) -> MaskingNote:
        task = task or f"{SESSION}/{name}"
        return self.all_sites.sites[name].masks(self.all_sites.run, payload, session=SESSION, task=task, asked=asked)


def refusal(call: Callable[[], object]) -> HanseError:
    with pytest.raises(HanseError) as refused:
        call()
    return refused.value


def share(all_sites: Rehearsal, request: ShareRequest, name: str = "site-0") -> bytes:
    return all_sites.sites[name].share(all_sites.run, request.encode(), session=SESSION)
