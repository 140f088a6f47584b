"""The last of a task: what is about to leave goes into the log of what left; then update and result are sent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from hanse_datapod.agent.decisions import is_held_back, until_let_out
from hanse_datapod.answers.delivery import outbox_entries, send
from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.home.line_day import LineDay
from hanse_datapod.home.outbox import Leaving, Outbox
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.messages import Task
from hanse_privacy.witness import beside, signed_head
from hanse_site import OpenTask, SiteLink


class HandingIn:
    """Hands in what a site has made, unless a pause holds it back."""

    def __init__(
        self, link: SiteLink, *, home: Path, folders: TaskFolders, policy: Policy, outbox: Outbox, line: LineDay,
        remembered: Remembered,
    ) -> None:  # fmt: skip
        self._link, self._home, self._folders, self._policy = link, home, folders, policy
        self._outbox, self._line, self._remembered = outbox, line, remembered

    async def write_down(self, *leaving: Leaving) -> None:
        """Write down what is about to leave, as soon as nothing is held back."""
        await until_let_out(self._home, self._link.bus.clock)
        await asyncio.to_thread(self._outbox.append, *leaving)

    def begin(self, task: Task, finished: FinishedTask) -> dict[str, str] | None:
        """The headers that go beside an answer, which is in the log then; None: it is held back. Blocks."""
        if not is_held_back(self._home):
            with suppress(Exception):  # it is tried again, and told of, when it is handed in
                return self._logged(task, finished)
        return None

    async def hand_in(self, opened: OpenTask, finished: FinishedTask, headers: dict[str, str] | None) -> None:
        """Send the update, then the result, for as long as the step can be open.

        Args:
            headers: that `begin` gave; None: it is not in the log yet.

        Raises:
            HanseError: UNAVAILABLE when that time is over; what the hub answered, if it refused.
        """
        task = opened.task
        if headers is None:
            await until_let_out(self._home, self._link.bus.clock)
            headers = await asyncio.to_thread(self._logged, task, finished)
        seconds = max(5.0, opened.seconds_left)
        await send(self._link, task, finished, self._folders.output(task), seconds=seconds, headers=headers)

    def _logged(self, task: Task, finished: FinishedTask) -> dict[str, str]:
        """Write down what is about to leave; gives the headers that go beside it. Blocks."""
        self._remembered.fix_answer(task, finished.result)
        self._outbox.append(*outbox_entries(task, finished, self._folders.output(task)))
        if self._policy.limits.mib_a_day is not None:
            made = (finished.result.update, finished.result.tally, *(finished.result.extras or {}).values())
            self._line.sent(made, self._link.bus.clock.now().timestamp())
        key, (entries, digest) = self._link.identity.signing_key, self._outbox.head()
        head = signed_head(
            entries, digest, project=task.project, participant=task.participant, key=key, of="outbox"
        )  # fmt: skip
        return beside(head)
