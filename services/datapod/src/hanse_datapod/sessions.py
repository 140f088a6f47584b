"""One answer per masked sum: a step that is opened again is answered with the same bytes, anything else is refused.

A site whose answer came too late finds the step open again, as a new task of the same session. A second mask for it
would be an update too many: from two masked updates under masks of which both sums are known, one could be read.
"""

from __future__ import annotations

from hanse_datapod.journal import Finished, Journal, work_of
from hanse_datapod.workplace import Workplace, masked
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_fabric.site import SiteLink


def known_answer(link: SiteLink, journal: Journal, place: Workplace, task: Task) -> Finished | None:
    """The answer that is there already: to this task, or to one that asked the same within its session.

    In the second case it is written down as this task's, too, before this returns.
    """
    finished = journal.find(task.id)
    if finished is not None or task.masking is None or not masked(task):
        return finished
    before = journal.answered(task.run, task.masking.session)
    if before is None or before[1] != work_of(task):
        return None
    known = journal.find(before[0])
    if known is None or not place.hand_down(task, before[0], large=known.large):
        return None  # its bytes are gone
    named = known.result.model_copy(update={"task": task.id, "step": task.step, "signature": b""})
    finished = Finished(link.sign(named), known.update, known.tally)
    journal.finish(task, finished)
    return finished


def require_new_session(journal: Journal, task: Task) -> None:
    """Check that the task is the first of its session here.

    Raises:
        HanseError: CONFLICT where another was answered.
    """
    if task.masking is None or not masked(task):
        return
    session = task.masking.session
    before = journal.answered(task.run, session)
    if before is not None and before[0] != task.id:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"session {session} of run {task.run}: this site has answered it already, to task {before[0]}",
            hint="a sum is made once; a step that is redone has a new session",
        )
