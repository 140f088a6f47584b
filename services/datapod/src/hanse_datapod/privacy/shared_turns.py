"""A site's shares of noise that is correlated over a run (`hanse_privacy.correlated.shares`): the secret that they are
made of, what the site must know of a round before it adds its share, and the update that it gives a second time.

Two sums of a round with the same noise and other updates would tell their difference without noise. So the update of
the newest round in which the site trained is kept, and given again whenever that round is asked again: what a worker
makes a second time may differ in a last bit. It is of this site's own data, clipped, without noise; one for each run.
After some weeks it is removed, and its round is not answered any more.

Loads numpy where there is noise to draw.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.home.folders import TaskFolders, file_time
from hanse_datapod.worker.port import DataState, WorkOutcome
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import Masking, Task, TaskKind

if TYPE_CHECKING:
    from hanse_privacy.ring.files import Adjust

SECRET = "correlated.secret"  # noqa: S105 - a file's name
FOLDER = "turns"
_SECRET_BYTES = 32
_making = threading.Lock()
_KEPT_S = 40 * 86_400  # longer than an honest hub asks a round again
_GONE = "gone"


def is_shared(task: Task) -> bool:
    """Whether the answer has a share of noise that is correlated over the run."""
    privacy = None if task.privacy is None else task.privacy.privacy
    return (
        privacy is not None and task.kind is TaskKind.TRAIN
        and privacy.placement == "distributed" and privacy.mechanism == "dp_ftrl"
    )  # fmt: skip


def rests(task: Task) -> bool:
    """Whether this site adds noise alone."""
    return is_shared(task) and task.privacy is not None and task.privacy.rests(task.participant)


def check_members(task: Task, least: int) -> None:
    """Refuse a round whose members are not told, or that is not one of all of them.

    Args:
        least: of how many sites' updates a sum must be, as this site sees it.

    Raises:
        HanseError: INVALID_INPUT for terms that contradict themselves; POLICY for too few who train.
    """
    if not is_shared(task) or task.privacy is None:
        return
    terms = task.privacy
    if task.bound is None:
        raise HanseError(
            ErrorCode.POLICY, "privacy.mechanism: dp_ftrl in a request that is bound to nothing: others may be told of "
            "other members", hint="the hub is of an early release: its operator upgrades it",
        )  # fmt: skip
    for name, told in (("members", terms.members), ("training", terms.training)):
        if list(told) != sorted(set(told)):
            raise invalid(f"privacy.{name}", f"{len(told)} names", "each name once, sorted")
    if len(terms.members) != terms.active or task.participant not in terms.members:
        raise invalid(
            "privacy.members", f"{len(terms.members)} names", f"{terms.active}, {task.participant} among them"
        )
    if beyond := sorted(set(terms.training) - set(terms.members)):
        raise invalid("privacy.training", ", ".join(beyond[:3]), "members")
    if len(terms.training) < least:
        raise HanseError(
            ErrorCode.POLICY, f"the masked sum is refused: {len(terms.training)} of its {terms.active} members train, "
            f"and this site wants a sum of {least} updates at least: those who rest add noise alone",
            hint="raise participants.minimum, or participants.fraction",
        )  # fmt: skip


def shared_terms(task: Task, home: Path) -> dict[str, Any]:
    """What stays the same over a run beside its privacy section: members, the ring, and the secret of this site."""
    from hanse_privacy.correlated.shares import commitment

    if task.privacy is None or task.masking is None:
        raise invalid("masking", None, "given, for shares of noise")
    ring = task.masking.ring.model_dump(mode="json")
    return {"members": list(task.privacy.members), "ring": ring, "secret": commitment(_secret(home))}


def share_of(task: Task, masking: Masking, home: Path) -> Adjust:
    """What adds this site's share to its update while the masked file is written.

    Raises:
        HanseError: as `noise.site.correlated_noise`.
    """
    from hanse_privacy.correlated.shares import run_key
    from hanse_privacy.noise.site import correlated_noise

    if task.privacy is None:
        raise invalid("privacy", None, "given, for shares of noise")
    key = run_key(_secret(home), task.project, task.run, task.participant)
    return correlated_noise(task.privacy, task.participant, masking.ring, key)


class SharedTurns:
    """What one home answers in rounds of runs that have such noise (`is_shared`), without its worker. Methods block.

    Args:
        home: in which the newest update of each run is kept.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def known(self, task: Task, model: Path | None, folders: TaskFolders) -> WorkOutcome | None:
        """What a site that rests answers, or what was answered in this round before; None: the worker is asked.

        Raises:
            HanseError: INVALID_INPUT for a task without a model; GONE for a round whose update is not kept any more;
                NO_SPACE.
        """
        made = folders.worker_output(task)
        outcome = _nothing(model, made) if rests(task) else self._find(task, made)
        return None if outcome is None else folders.take(task, outcome)

    def keep(self, task: Task, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome, whose update is kept before its noise is drawn. It is on the disk then.

        Raises:
            HanseError: INVALID_INPUT for an outcome without one; NO_SPACE.
        """
        if outcome.update is None:
            raise invalid("update", None, "made, for shares of noise are added to it")
        file = self._file(task)
        data = asdict(outcome.data)
        told = {"of": _of(task), "examples": outcome.examples, "data": data, "code": outcome.code_digest}
        with durable.space_errors(file):
            file.parent.mkdir(exist_ok=True, mode=0o700)
            self._clear(file.parent)
            file.with_suffix(".json").unlink(missing_ok=True)  # what tells of an update is there only while it is
            _copy(outcome.update, file)
            durable.write_durably(file.with_suffix(".json"), json.dumps(told))
        return outcome

    def _find(self, task: Task, output: Path) -> WorkOutcome | None:
        file = self._file(task)
        try:
            told = json.loads(file.with_suffix(".json").read_bytes())
        except FileNotFoundError:
            return None
        if told["of"] != _of(task):
            return None
        if _GONE in told or not file.exists():
            raise HanseError(
                ErrorCode.GONE,
                f"round {task.round} of run {task.run}: this site has answered it, and keeps its update no more",
                hint="made again, it could be another one under the same noise",
            )
        _copy(file, output)
        data = DataState(**told["data"])
        return WorkOutcome(output, int(told["examples"]), {}, code_digest=told["code"], data=data)

    def _file(self, task: Task) -> Path:
        return self._home / FOLDER / f"{task.run}.update"

    @staticmethod
    def _clear(folder: Path) -> None:
        """Remove old updates, noting that there were such: a hub may ask for the newest round of a run at any time."""
        for path in folder.iterdir():
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime >= file_time() - _KEPT_S:
                    continue
                if path.suffix == ".json":
                    _note_gone(path)
                else:
                    path.unlink()


def _nothing(model: Path | None, output: Path) -> WorkOutcome:
    """An update that changes nothing, of a model's layout: no worker and no data are asked."""
    import numpy as np

    from hanse_fabric.tensors.file import read_tensors, write_tensors

    if model is None:
        raise invalid("model", None, "given: whoever rests adds noise to nothing, of its layout")
    layout, arrays = read_tensors(model)
    write_tensors(output, layout, {name: np.zeros_like(array) for name, array in arrays.items()})
    return WorkOutcome(output, 0, {})


def _note_gone(path: Path) -> None:
    """What told of an update tells of which it was, and no more."""
    told = json.loads(path.read_bytes())
    if _GONE not in told:
        durable.write_durably(path, json.dumps({"of": told["of"], _GONE: True}))


def _copy(file: Path, target: Path) -> None:
    """A copy, on the disk when this returns: whoever still has the file open changes it no more."""
    with durable.space_errors(target), file.open("rb") as read:
        target.unlink(missing_ok=True)
        with target.open("xb") as written:
            target.chmod(0o600)
            shutil.copyfileobj(read, written, 1 << 20)
            written.flush()
            durable.sync(written.fileno())
        durable.sync_folder(target.parent)


def _of(task: Task) -> str:
    from hanse_learning.binding import work_digest

    return hashlib.sha256(f"{task.project}\n{task.run}\n{task.round}\n".encode() + work_digest(task)).hexdigest()


def _secret(home: Path) -> bytes:
    """This site's secret, which is made once. A ledger that has turns knows which one it was.

    Raises:
        HanseError: TAMPERED for a file of another length; NO_SPACE.
    """
    file = home / SECRET
    with _making:
        try:
            found = file.read_bytes()
        except FileNotFoundError:
            found = os.urandom(_SECRET_BYTES)
            durable.write_durably(file, found)
    if len(found) != _SECRET_BYTES:
        raise HanseError(ErrorCode.TAMPERED, f"{file.name}: {len(found)} bytes, expected {_SECRET_BYTES}")
    return found
