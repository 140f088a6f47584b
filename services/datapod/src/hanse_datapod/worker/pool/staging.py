"""A request's files in the shared folder: what the worker reads is put there, what it made is fetched from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_datapod.worker.pool.files import folder_itself, hand_over, take_over
from hanse_datapod.worker.port import extra_output
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError

_MODEL, _STATE, _OUTPUT = "model", "state", "made"


def stage(body: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put a request's inputs into `folder`, which is made; the body with names within it.

    Raises:
        HanseError: NO_SPACE.
    """
    folder.mkdir(mode=0o700)
    if body["operation"] != "work":
        return body
    staged = body | {"output": _OUTPUT, "state": _STATE, "extras": {}}
    if body["model"] is not None:
        hand_over(Path(body["model"]), folder / _MODEL)
        staged["model"] = _MODEL
    for number, (name, path) in enumerate(sorted(body["extras"].items())):
        staged["extras"][name] = f"extra-{number}"
        hand_over(Path(path), folder / f"extra-{number}")
    (folder / _STATE).mkdir(mode=0o700)
    state = Path(body["state"])
    for path in state.iterdir() if state.is_dir() else ():
        if _is_own(path):
            hand_over(path, folder / _STATE / path.name)
    return staged


def placed(body: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A staged body with the paths that the worker's process opens.

    Raises:
        HanseError: INVALID_INPUT for a name that leaves the folder.
    """
    body = body | {"scratch": str(folder.parent)}  # the site's own is not in a pool's reach
    if body["operation"] != "work":
        return body
    return body | {
        "model": None if body["model"] is None else _within(folder, body["model"]),
        "output": _within(folder, body["output"]),
        "state": _within(folder, body["state"]),
        "extras": {name: _within(folder, path) for name, path in body["extras"].items()},
    }


def fetch(body: dict[str, Any], answer: dict[str, Any], folder: Path) -> None:
    """Put what was made where the request wants it: outputs, then the state.

    Raises:
        HanseError: NO_SPACE; TAMPERED where a link lies in place of what was made.
    """
    if body["operation"] != "work":
        return
    output, made = Path(body["output"]), folder / _OUTPUT
    if answer["update"]:
        take_over(made, output)
    for name in answer["extras"]:
        take_over(extra_output(made, name), extra_output(output, name))
    kept = {path.name: path for path in folder_itself(folder / _STATE).iterdir() if _is_own(path)}
    state = Path(body["state"])
    if not kept and not state.is_dir():
        return
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = {path.name for path in state.iterdir() if path.is_file()}
    for name, path in kept.items():
        take_over(path, state / name)
    # The new state is on the disk before the older one is removed.
    durable.sync_folder(state)
    for name in before - kept.keys():
        (state / name).unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    """Whether it is a file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def _within(folder: Path, name: str) -> str:
    if Path(name).name != name or name in ("", ".", ".."):
        raise HanseError(ErrorCode.INVALID_INPUT, f"pool request: {name!r} is not the name of a file in its folder")
    return str(folder / name)
