"""The project's terms while the datapod runs: tasks are held against what the site has agreed to; what the hub asks for
now is fetched where it is news; and the hub is told when somebody here agrees, by whichever command or page.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from hanse_datapod.home.begun_under import BegunUnder
from hanse_datapod.home.outbox import CONSENT, Leaving, Outbox
from hanse_datapod.policy.terms import TermsPolicy, check_terms, terms_of
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Task
from hanse_schemas.terms import ProjectTerms
from hanse_site import SiteIdentity
from hanse_site.consent import AGREED, agreements, keep_asked
from hanse_site.project_terms import agreed_at_hub, consent_url, tell_agreement, terms_now

EVERY_S, AGAIN_S, LOOK_S = 3600.0, 60.0, 2.0
_log = logging.getLogger(__name__)


class TermsHere:
    """Of one home, in the project that it joined."""

    def __init__(self, identity: SiteIdentity, home: Path, policy: TermsPolicy, outbox: Outbox, clock: Clock) -> None:
        self._identity, self._home, self._policy = identity, home, policy
        self._outbox, self._clock = outbox, clock
        self._begun = BegunUnder(home)
        self._unknown: set[str] = set()

    def close(self) -> None:
        """Give the file back; the next change opens it again."""
        self._begun.close()

    def check(self, task: Task) -> None:
        """Whether a task is within what the site has agreed to. Blocks; any thread.

        Raises:
            HanseError: POLICY.
        """
        check_terms(self._of(task), task)

    def begin(self, task: Task) -> None:
        """Write down that a task's run begins under the terms that it names. Blocks; any thread.

        Raises:
            HanseError: NO_SPACE.
        """
        if task.terms is not None:
            self._begun.keep(task.run, task.terms)

    def epsilon(self, task: Task) -> float | None:
        """What the task's run may cost the site by its terms, at delta `AT_DELTA`; None: they do not say. Blocks.

        Raises:
            HanseError: POLICY.
        """
        terms = self._of(task)
        return None if terms is None else terms.asked.epsilon

    def _of(self, task: Task) -> ProjectTerms | None:
        agreed = agreements(self._home)
        if task.terms is not None and all(each.terms.digest != task.terms for each in agreed):
            self._unknown.add(task.terms)
        # Where a task names the newest, it does not matter when its run began.
        newest = not agreed or agreed[-1].terms.digest == task.terms
        begun = not newest and task.terms is not None and self._begun.knows(task.run, task.terms)
        return terms_of(self._policy, agreed, task, begun=begun)

    async def follow(self) -> None:
        """Until cancelled. A site that has agreed to nothing, and is asked under no terms, never asks the hub."""
        seen, known, due = 0, set[str](), 0.0
        while True:
            stamp, unknown, now = await asyncio.to_thread(self._stamp), set(self._unknown), self._clock.monotonic()
            if stamp != seen or unknown != known:
                due = now
            if (stamp or unknown) and now >= due and self._identity.record.api_key:
                due = now + await self._compared()
            seen, known = stamp, unknown
            await self._clock.sleep(LOOK_S)

    async def _compared(self) -> float:
        """Compare with the hub; returns the seconds until that is due again."""
        try:
            await self._compare()
        except HanseError as error:
            _log.warning("the project's terms could not be compared with the hub's", extra={"reason": error.message})
            return AGAIN_S
        return EVERY_S

    def _stamp(self) -> int:
        try:
            return (self._home / AGREED).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    async def _compare(self) -> None:
        """Keep what the hub asks for, and tell it what the site has agreed to."""
        terms = await terms_now(self._identity, self._clock)
        await asyncio.to_thread(keep_asked, self._home, terms)
        if terms is None:
            return
        made = next((each for each in await asyncio.to_thread(agreements, self._home) if each.terms == terms), None)
        if made is None:
            told = {"terms": terms.digest, "version": terms.version}
            _log.warning("the project has terms that nobody here has agreed to: hanse site agree", extra=told)
        elif await agreed_at_hub(self._identity, self._clock) != terms.digest:
            leaving = Leaving(CONSENT, consent_url(self._identity), 0, terms.digest)
            await asyncio.to_thread(self._outbox.append, leaving)
            await tell_agreement(self._identity, made, self._clock)
            _log.info("the hub is told that this site agrees to the project's terms", extra={"terms": terms.digest})
