"""The files of a home's tasks: where the worker writes, what is handed in, when files are removed, and disk space.

Space is looked at before the work: a full disk is a refusal, not a failure in the middle.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.port import SPARE, extra_output
from hanse_fabric import durable
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind

PAIRWISE = "pairwise"
"""Folder of a home: keys and secrets of pairwise masking, by run."""
MASKED_SPARE = "spare.masked"
"""Name, beside the output, of an old masked file that may be written over."""
PLAIN = ".plain"
"""Ending of an update that the worker has written and that will not leave as it is."""
MARGIN, STUDY_MARGIN = 128 << 10, 32 << 20
"""Bytes of disk beside what a task is known to write."""
_KEPT_S = 2 * 86_400
_STUDY_KEPT_S = 40 * 86_400  # longer than a task can be open
_STUDIES = "studies"


class TaskFolders:
    """The folders `work`, `state` and `studies` of one home. Its methods block, and any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def output(self, task: Task) -> Path:
        """The file of the update that leaves."""
        return self._home / "work" / f"{task.run}.{task.id}.update"

    def worker_output(self, task: Task) -> Path:
        """The file that the worker writes: another than `output`, and soon removed, where the answer is masked."""
        output = self.output(task)
        return output.with_suffix(PLAIN) if masked(task) else output

    def state(self, task: Task) -> Path:
        """What stays at the site between the rounds of a run, or the steps of a study."""
        return self._home / (_STUDIES if is_study_step(task) else "state") / task.run

    def prepare(self, task: Task) -> None:
        """Remove what earlier tasks have left, and check the disk's space. The task is under way until `drop_plain`.

        Raises:
            HanseError: NO_SPACE.
        """
        work = self._home / "work"
        with durable.space_errors(self._home):
            work.mkdir(exist_ok=True, mode=0o700)
            self.state(task).mkdir(parents=True, exist_ok=True, mode=0o700)
            os.utime(self.state(task))
        with self._lock:
            self._under_way.add(task.id)
            self._clear(work, task)
        require_space(self._home, needed_for(task))

    def _clear(self, work: Path, task: Task) -> None:
        """Remove large updates that nobody can ask for any more: older ones of this training run, and expired ones of
        any.

        One older update is kept as a spare file for the next to be written over, which is faster. Plain updates that a
        crash has left are always removed. Files of tasks under way are never touched.
        """
        oldest, spare = file_time() - _KEPT_S, work / (MASKED_SPARE if masked(task) else SPARE)
        others = self._under_way - {task.id}
        for path in work.iterdir():
            name = path.name.removeprefix(".")  # of a file that is not whole yet (`whole_file`)
            owner = name.split(".")[1:2]
            if owner and owner[0] in others:
                continue
            mine = name.startswith(f"{task.run}.") and not is_study_step(task)
            with suppress(FileNotFoundError):  # another task's, which was done meanwhile
                if PLAIN in path.suffixes:
                    path.unlink()
                elif mine and path.suffix == ".update":
                    path.replace(spare)
                elif mine or path.stat().st_mtime < oldest:
                    path.unlink()

    def forget(self, run: str) -> bool:
        """Remove all that the study of a run has left; False: there was nothing."""
        state = self._home / _STUDIES / run
        known = state.exists()
        for folder in (state, self._home / PAIRWISE / run):
            shutil.rmtree(folder, ignore_errors=True)
        work = self._home / "work"
        for path in (*work.glob(f"{run}.*"), *work.glob(f".{run}.*")):
            path.unlink(missing_ok=True)
        return known

    def forget_old(self) -> None:
        """Remove what studies have left whose tasks have all expired, and whose end was never announced."""
        for folder in (self._home / _STUDIES).glob("*"):
            if folder.stat().st_mtime < file_time() - _STUDY_KEPT_S:
                self.forget(folder.name)

    def take_over_from(self, task: Task, before: str, *, large: bool) -> bool:
        """Rename the large update of task `before`, of the same run, to this task's; False: it is gone."""
        if not large:
            return True
        output = self.output(task)
        with suppress(FileNotFoundError):
            output.with_name(f"{task.run}.{before}.update").replace(output)
            durable.sync_folder(output.parent)
        return output.exists()

    def has_all_of(self, task: Task, finished: FinishedTask) -> bool:
        """Whether all large parts of an answer are still there."""
        output = self.output(task)
        large = [output] if finished.large else []
        large += [extra_output(output, name) for name in finished.result.extras or {} if name not in finished.extras]
        return all(path.exists() for path in large)

    def drop_plain(self, task: Task) -> None:
        """Remove the plain update of a masked answer, and its extras: the task is done."""
        with self._lock:
            self._under_way.discard(task.id)
        if masked(task):
            worked = self.worker_output(task)
            for path in (worked, *worked.parent.glob(f"{worked.name}.*")):
                path.unlink(missing_ok=True)

    def drop(self, task: Task) -> None:
        """Remove what the task has made."""
        output = self.output(task)
        for path in (output, *output.parent.glob(f"{output.name}.*")):
            path.unlink(missing_ok=True)


def file_time() -> float:
    """Now, as the file system dates what is changed: on the machine's clock, also where all else is simulated."""
    return SYSTEM_CLOCK.now().timestamp()


def masked(task: Task) -> bool:
    """Whether the answer is to be masked. The first model, made from the run's seed, hides nothing."""
    return task.masking is not None and task.kind is not TaskKind.INITIALIZE


def needed_for(task: Task) -> int:
    """Bytes that a task may write: the model, the update, personal layers that are kept, the extras and what is kept of
    them, and the masked update, whose elements may be wider than the model's.
    """
    if task.kind is TaskKind.STUDY:
        # The size of a step's output is not known before; it is mostly smaller than the objects that it is given.
        return STUDY_MARGIN + 3 * sum(ref.size for ref in (task.extras or {}).values())
    size = task.model.size if task.model is not None else 0
    if task.kind is not TaskKind.TRAIN:
        return MARGIN + size
    masked = task.masking.ring.default.bits // 16 if task.masking is not None else 0
    return MARGIN + size * (3 + masked + 3 * len(task.extras or {}))


def require_space(folder: Path, needed: int) -> None:
    """Refuse when `folder`'s disk has fewer than `needed` bytes free.

    Raises:
        HanseError: NO_SPACE naming folder, bytes needed and bytes free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HanseError(
            ErrorCode.NO_SPACE,
            f"{folder}: the task needs {needed} bytes of disk, {free} are free",
            hint="free space on the site's volume",
        )
