"""The files of a home's tasks: where the worker writes, what is handed in, when files are removed, and disk space.

Space is looked at before the work: a full disk is a refusal, not a failure in the middle.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.study.tasks import is_study_step
from hanse_datapod.worker.pool.files import take_over
from hanse_datapod.worker.port import CHECKPOINT, SPARE, WorkOutcome, extra_output
from hanse_fabric import durable
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, unfit
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.tensors.refs import holds
from hanse_site.task_files import RECEIVED

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
_STUDIES, _MADE = "studies", "made"


def worker_folders(home: Path) -> tuple[list[Path], list[Path]]:
    """(folders of the home that the worker may read, folders that it may write in), which are made.

    Raises:
        HanseError: NO_SPACE.
    """
    given, own = ([home / name for name in names] for names in (RECEIVED, (_MADE, "state", _STUDIES)))
    with durable.space_errors(home):
        for folder in (*given, *own):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return given, own


def scratch_folder(home: Path) -> Path:
    """The folder of a home for files of data larger than memory, which have no names: it always looks empty."""
    return home / _MADE


class TaskFolders:
    """The folders `work`, `made`, `state` and `studies` of one home. Its methods block, and any thread may call them.

    The worker writes in the last three. What it has made is moved to `work`, where it reaches it no more.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._work, self._made = home, home / "work", home / _MADE
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def output(self, task: Task) -> Path:
        """The file of the update that leaves."""
        return self._work / f"{task.run}.{task.id}.update"

    def worker_output(self, task: Task) -> Path:
        """The file that the worker writes."""
        return self._made / self._taken(task).name

    def take(self, task: Task, outcome: WorkOutcome) -> WorkOutcome:
        """Move what the worker has made to where it cannot change it; the outcome with the files there.

        Raises:
            HanseError: TAMPERED where a link or no file lies in its place; NO_SPACE.
        """
        taken = self._taken(task)
        update = None if outcome.update is None else taken
        extras = {name: extra_output(taken, name) for name in outcome.extras}
        for made, path in ((outcome.update, update), *((outcome.extras[name], extras[name]) for name in extras)):
            if made is not None and path is not None:
                take_over(made, path)
        return replace(outcome, update=update, extras=extras)

    def _taken(self, task: Task) -> Path:
        """Another file than `output`, and soon removed, where the answer is masked."""
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
        state = self.state(task)
        with durable.space_errors(self._home):
            self._work.mkdir(exist_ok=True, mode=0o700)
            self._made.mkdir(exist_ok=True, mode=0o700)
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.utime(state)
        with self._lock:
            self._under_way.add(task.id)
            self._clear(self._work, task)
            self._clear(self._made, task)
        require_space(self._home, needed_for(task))

    def _clear(self, folder: Path, task: Task) -> None:
        """Remove large updates that nobody can ask for any more: older ones of this training run, and expired ones of
        any.

        What this very task has left to go on from stays. One older update is kept as a spare file for the next to be
        written over, which is faster. Plain updates that a crash has left are always removed. Files of tasks under way
        are never touched.
        """
        oldest = file_time() - _KEPT_S
        spare = self._work / MASKED_SPARE if masked(task) else self._made / SPARE
        others = self._under_way - {task.id}
        for path in folder.iterdir():
            name = path.name.removeprefix(".")  # of a file that is not whole yet (`whole_file`)
            owner = name.split(".")[1:2]
            if owner and (owner[0] in others or (owner[0] == task.id and path.suffix == CHECKPOINT)):
                continue
            mine = name.startswith(f"{task.run}.") and not is_study_step(task)
            with suppress(FileNotFoundError):  # another task's, which was done meanwhile
                if mine and path.suffix == ".update" and PLAIN not in path.suffixes:
                    path.replace(spare)
                elif mine or PLAIN in path.suffixes or path.lstat().st_mtime < oldest:
                    _remove(path)

    def forget(self, run: str) -> bool:
        """Remove all that the study of a run has left; False: there was nothing."""
        state = self._home / _STUDIES / run
        known = state.exists()
        for folder in (state, self._home / PAIRWISE / run):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self._work, self._made):
            for path in (*folder.glob(f"{run}.*"), *folder.glob(f".{run}.*")):
                _remove(path)
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
        """Whether all large parts of an answer are still there, and are what it says: a power cut may have taken what
        nobody waited for (`repeatable`)."""
        output, told = self.output(task), finished.result
        large = {output: told.update} if finished.large else {}
        for name, ref in (told.extras or {}).items():
            if name not in finished.extras:
                large[extra_output(output, name)] = ref
        return all(ref is not None and holds(path, ref) for path, ref in large.items())

    def drop_plain(self, task: Task) -> None:
        """Remove the plain update of a masked answer, and its extras: the task is done."""
        with self._lock:
            self._under_way.discard(task.id)
        if masked(task):
            _remove_all(self.worker_output(task), self._taken(task))

    def drop(self, task: Task) -> None:
        """Remove what the task has made."""
        _remove_all(self.worker_output(task), self.output(task))


def _remove_all(*files: Path) -> None:
    """Remove files, with what is named after them."""
    for file in files:
        for path in (file, *_named_after(file)):
            _remove(path)


def _named_after(file: Path) -> list[Path]:
    """Files beside it whose names go on from its name. A glob would compile a pattern for every task."""
    try:
        beside = list(file.parent.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in beside if path.name.startswith(f"{file.name}.")]


def _remove(path: Path) -> None:
    """Remove a file or link, or what site code has put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def file_time() -> float:
    """Now, as the file system dates what is changed: on the machine's clock, also where all else is simulated."""
    return SYSTEM_CLOCK.now().timestamp()


def masked(task: Task) -> bool:
    """Whether the answer is to be masked. The first model, made from the run's seed, hides nothing."""
    return task.masking is not None and task.kind is not TaskKind.INITIALIZE


def repeatable(task: Task) -> bool:
    """Whether the work may be done again, should its answer be lost: of an answer that is masked, or charged to a
    budget, a second one would tell more than the first."""
    return not masked(task) and task.privacy is None


def needed_for(task: Task) -> int:
    """Bytes that a task may write: the model, what leads to it, the update, personal layers that are kept, the extras
    and what is kept of them, and the masked update, whose elements may be wider than the model's.
    """
    if task.kind is TaskKind.STUDY:
        # The size of a step's output is not known before; it is mostly smaller than the objects that it is given.
        return STUDY_MARGIN + 3 * sum(ref.size for ref in (task.extras or {}).values())
    size = task.model.size if task.model is not None else 0
    ways = sum(delta.ref.size for delta in task.deltas or ())
    if task.kind is not TaskKind.TRAIN:
        return MARGIN + size + ways
    masked = 0
    if task.masking is not None:
        masked = max(1, -(-task.masking.ring.default.bits // 16)) + -(-(task.masking.ring.signs or 0) // 16)
    return MARGIN + ways + size * (3 + masked + 3 * len(task.extras or {}))


def require_space(folder: Path, needed: int) -> None:
    """Refuse when `folder`'s disk has fewer than `needed` bytes free.

    Raises:
        HanseError: NO_SPACE naming bytes needed and bytes free; which folder is for who may see the site's files.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise unfit(
            f"the task needs {needed} bytes of disk, {free} are free",
            str(folder), code=ErrorCode.NO_SPACE, hint="free space on the site's volume",
        )  # fmt: skip
