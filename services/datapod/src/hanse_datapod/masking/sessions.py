"""One answer per masked sum: a step that is opened again is answered with the same bytes, anything else is refused.

A site whose answer came too late finds the step open again, as a new task of the same session. With a second mask for
the same session, the hub would hold two masked updates and both mask sums, and could read a site's update from them.
"""

from __future__ import annotations

from dataclasses import replace

from hanse_datapod.home.folders import TaskFolders, masked, repeatable
from hanse_datapod.home.journal import FinishedTask, TaskJournal, work_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Task
from hanse_fabric.messages.objects import update_key
from hanse_site import SiteLink


def known_answer(link: SiteLink, journal: TaskJournal, folders: TaskFolders, task: Task) -> FinishedTask | None:
    """The answer in the journal: to this task, or to an earlier task of its session that asked the same.

    In the second case it is written down as this task's, too, before this returns. Of work that may be done again, an
    answer is none whose large parts are gone: they were cleared away, since its run had gone on (a hub that was
    restored from a backup asks for it again), or a power cut took them.
    """
    finished = journal.find(task.id)
    if task.masking is None or not masked(task):
        if finished is not None and repeatable(task) and not folders.has_all_of(task, finished):
            journal.forget(task.id)
            return None
        return finished and _given_to(link, task, finished)
    if finished is not None:
        return _given_to(link, task, finished)
    before = journal.answered(task.run, task.masking.session)
    if before is None or before[1] != work_of(task):
        return None
    known = journal.find(before[0])
    if known is None or not folders.take_over_from(task, before[0], large=known.large):
        return None  # its bytes are gone
    finished = _given_to(link, task, known)
    journal.finish(task, finished)
    return finished


def _given_to(link: SiteLink, task: Task, known: FinishedTask) -> FinishedTask:
    """The answer, signed as this task's: it may have been another's, or name the place that release 0.1.0 put it."""
    result = known.result
    places = {
        "update": result.update and _placed(task, result.update),
        "extras": result.extras and {name: _placed(task, ref) for name, ref in result.extras.items()},
    }
    named = result.model_copy(update={"task": task.id, "step": task.step, **places})
    return known if named == result else replace(known, result=link.sign(named))


def _placed(task: Task, ref: ObjectRef) -> ObjectRef:
    if ref.key is None:
        return ref
    return ref.model_copy(update={"key": update_key(task.project, task.run, task.participant, task.id, ref.digest)})


def require_new_session(journal: TaskJournal, task: Task) -> None:
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
