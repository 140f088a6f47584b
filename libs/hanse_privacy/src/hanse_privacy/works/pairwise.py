"""What one site asks of the next session of a work, where the sites' masks cancel and nobody remembers for all.

A site knows what it did itself: with whom it masked (`Answered`), and whose sum it helped to unmask (`Revealed`). Sets
are kept to a chain (`chain`) because any two sums have an honest site that helped with both, and because a sum that was
not unmasked is dead once enough of its members go on: a session ends those before it. Each session that this site
answered since is asked about, not the last alone: that one may have been for show, answered by few, and ends nothing.

A hub may name other survivors to each site, and so unmask the sum of a set that no site was told. So a set that is to
be smaller is counted against the smallest that could have been unmasked, and it is the members of a session that are
fewer, not the survivors of one among the same members; and that once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise.thresholds import smallest_sum
from hanse_privacy.works.chain import Members


@dataclass(frozen=True, slots=True)
class UnmaskingSession:
    """Among whom a session is, and how many of them unmask a sum.

    Attributes:
        gap: of how many members any difference of two sums must speak, those who may collude included.
        colluding: how many may.
    """

    members: Members
    threshold: int
    gap: int
    colluding: int = 0

    @property
    def smallest(self) -> int:
        """The fewest members whose sum can be unmasked, by a hub that names other survivors to each site."""
        return smallest_sum(len(self.members), self.threshold, self.colluding) + self.colluding

    @property
    def sure(self) -> int:
        """So many members, at least, have ended what they masked of the work before, where this session is unmasked:
        those who answered in it. Who only shared secrets in it may have answered an earlier session after that."""
        return self.threshold

    def unmasked_alone(self, among: int) -> bool:
        """Whether the sites that unmask two sums of `among` members must have an honest one in common."""
        return 2 * self.threshold - self.colluding > among


@dataclass(frozen=True, slots=True)
class Past:
    """What a site did for a work, and for those near to it.

    Attributes:
        answered: the sessions in which its answers left since it last helped to unmask, each once.
        revealed: the last survivors whose sum it helped to unmask, or with whom it began sums that need no unmasking.
        within: the session of these.
        changed: whether these were fewer than those before.
    """

    answered: tuple[UnmaskingSession, ...] = ()
    revealed: Members | None = None
    within: UnmaskingSession | None = None
    changed: bool = False

    def check(self, session: UnmaskingSession) -> None:
        """Whether the site may share secrets, or answer, in this session.

        Raises:
            HanseError: CONFLICT.
        """
        self._check_revealed(session)
        self._check_dead(session)

    def check_near(self, session: UnmaskingSession) -> None:
        """Whether the site may answer in this session, where this is the past of near works alone: what it has answered
        of these counts, also where a sum of this work was unmasked since.

        Raises:
            HanseError: CONFLICT.
        """
        self._check_dead(session)

    def check_survivors(self, session: UnmaskingSession, survivors: Members) -> None:
        """Whether the site may help to unmask the sum of these.

        Raises:
            HanseError: CONFLICT.
        """
        self._check_revealed(session)
        if session.members == self.revealed != survivors:
            raise _refused(
                f"survivors: {len(survivors)}, a sum of this work over the same {len(session.members)} members was "
                "unmasked already, and all of them are in the next"
            )

    def after_answer(self, session: UnmaskingSession) -> Past:
        """The past, once an answer has left."""
        return self if session in self.answered else replace(self, answered=(*self.answered, session))

    def after_reveal(self, session: UnmaskingSession, survivors: Members) -> Past:
        """The past, once the site helped to unmask."""
        changed = self.changed or (self.revealed is not None and self.revealed != survivors)
        return Past((), survivors, session, changed)

    def _check_dead(self, session: UnmaskingSession) -> None:
        for before in self.answered:
            if before.members == session.members:
                continue
            again = max(len(before.members & session.members) - (len(session.members) - session.sure), 0)
            wanted = len(before.members) - before.threshold + before.colluding + 1
            if again < wanted:
                raise _refused(
                    f"members: {again} of the {len(before.members)} with whom this work was masked are sure to answer "
                    f"where {session.sure} of {len(session.members)} do, at least {wanted} are wanted, lest that sum "
                    "be unmasked beside this one"
                )

    def _check_revealed(self, session: UnmaskingSession) -> None:
        last, before = self.revealed, self.within
        if last is None or before is None or session.members == last:
            return
        most = 0 if self.changed else before.smallest - max(session.gap, before.gap)
        if not session.members < last or len(session.members) > most or not session.unmasked_alone(len(last)):
            raise _refused(
                f"members: {len(session.members)}, a sum of this work over {len(last)} was unmasked already; the same "
                f"are summed again, or once {max(most, 0)} or fewer of them"
            )


def _refused(why: str) -> HanseError:
    return HanseError(
        ErrorCode.CONFLICT, why,
        hint="the difference of two sums of one work would tell what few sites have; where all sums have the same "
        "members (`members: fixed`, and FedTAN), `hanse site renew` at each site lets the next have others",
    )  # fmt: skip
