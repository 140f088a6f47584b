"""Records runs of every kind by the real services of this release, by hand, before a release is left behind.

    PYTHONPATH=tests python -m releases.record --release 0.1.0 --commit 21825c2 [--only NAME ...]

The commit is the one that the recordings are of: the recorder refuses where `libs` or `services` differ from it. It
takes minutes. Keys and credentials in recordings were made for them, on hubs that are gone: they are worth nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hanse_fabric.messages import ModelVersion, PublishModel
from hanse_fabric.subjects import AUDIT, MODELS, PUBLISH_MODEL, REGISTRY
from releases.recording import FOLDER, SUFFIX, Recording, Said, StoredHome, write_home, write_run
from releases.spoilt_runs import spoilt
from releases.stage import Played
from releases.study_runs import studies
from releases.tap import row_of
from releases.training_runs import training

ROOT = Path(__file__).parents[2]
LIMIT = 900_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--release", required=True)
    arguments.add_argument("--commit", required=True)
    arguments.add_argument("--only", nargs="*", default=())
    given = arguments.parse_args()
    header = {"release": given.release, "commit": checked_commit(given.commit)}
    asyncio.run(record(header, frozenset(given.only)))
    check_folder(FOLDER / given.release)


def checked_commit(name: str) -> str:
    """The commit's whole name, where libraries and services are as they are in it."""
    commit = git("rev-parse", "--verify", f"{name}^{{commit}}")
    changed = git("diff", "--name-only", commit, "--", "libs", "services")
    if changed:
        sys.exit(f"libs and services are not those of {commit}:\n{changed}")
    return commit


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


async def record(header: dict[str, str], only: frozenset[str]) -> None:
    """Play the scenes, and write what was heard."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for scene in (training, studies, spoilt):
        played = Played()
        with tempfile.TemporaryDirectory(prefix="hanse-") as folder:
            await scene(Path(folder), played, lambda name: not only or name in only)
        for name, (tap, run) in played.runs.items():
            found = {
                "kind": name, **header, "recorded_at": at, "project": project_of(tap.said, run.id), "run": run.id,
                "state": run.state, "digest": run.view.model_digest,
            }  # fmt: skip
            objects = (Said("object", key, data) for key, data in played.objects.get(name, {}).items())
            said = tuple(objects) + tuple(of_run(tap.said, found))
            path = write_run(header["release"], f"run-{name}", Recording(found, said))
            print(f"{path.name}: {len(said)} lines, {path.stat().st_size} bytes", flush=True)
        for name, (more, home) in played.homes.items():
            own = {"kind": name, **header, "recorded_at": at, **more}
            path = write_home(header["release"], name, StoredHome(own, home.files))
            print(f"{path.name}: {len(home.files)} files, {path.stat().st_size} bytes", flush=True)


def project_of(said: list[Said], run: str) -> str:
    return next(
        tokens["project"] for one in said if (tokens := tokens_of(one)).get("run") == run and "project" in tokens
    )


def of_run(said: list[Said], header: dict[str, Any]) -> Iterator[Said]:
    """What was said in a run, and what was said to all that it stands on: records, presence, links."""
    run, project = header["run"], header["project"]
    mine = [place for place, one in enumerate(said) if tokens_of(one).get("run") == run]
    first, last = mine[0], mine[-1]
    for place, one in enumerate(said[: last + 1]):
        tokens = tokens_of(one)
        if tokens.get("run", run) != run or tokens.get("project", project) != project:
            continue
        if one.what == "purge" and f".{run}" not in one.subject:
            continue
        row = None if one.what == "purge" else row_of(one.subject)
        if row is REGISTRY or (row is PUBLISH_MODEL and PublishModel.decode(one.data).lineage.run != run):
            continue
        if row is MODELS and ModelVersion.decode(one.data).lineage.run != run:
            continue
        if row is AUDIT and f'"run:{run}"' not in one.data.decode() and place < first:
            continue
        superseded = one.subject.startswith("hanse.v1.presence.") and any(
            later.subject == one.subject for later in said[place + 1 : first]
        )
        if not superseded:
            yield one


def tokens_of(said: Said) -> dict[str, str]:
    return {} if said.what == "purge" else row_of(said.subject).parse(said.subject)


def check_folder(folder: Path) -> None:
    """Refuse recordings that are large, or tell of this machine."""
    total = 0
    words = (socket.gethostname(), f"{Path.home()}/", f"{tempfile.gettempdir()}/", str(ROOT))
    telling = re.compile("|".join(rf"(?<![\w+/=-]){re.escape(word)}(?![\w+=-]*[+=])" for word in words))
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        total += path.stat().st_size
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            text = line if "text" in json.loads(line) else re.sub('"base64":"[^"]*"', "", line)
            if found := telling.search(text):
                sys.exit(
                    f"{path.name} tells of this machine: ...{text[max(0, found.start() - 200) : found.end() + 99]}"
                )
    print(f"{folder.name}: {total} bytes")
    if total > LIMIT:
        sys.exit(f"{total} bytes are more than {LIMIT}")


if __name__ == "__main__":
    main()
