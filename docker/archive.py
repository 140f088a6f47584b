"""Reads a file out of an image: `python archive.py IMAGE.tar PATH...` prints the first of the paths that it has."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path


def read(archive: Path, paths: Sequence[str]) -> bytes | None:
    """The contents of the first of `paths` that is a plain file; a later layer wins."""
    with tarfile.open(archive) as outer:
        manifest = outer.extractfile("manifest.json")
        layers = json.load(manifest)[0]["Layers"] if manifest else []
        for path in paths:
            for layer in reversed(layers):
                with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
                    if path in inner.getnames() and inner.getmember(path).isfile():
                        found = inner.extractfile(path)
                        return found.read() if found else None
    return None


def main(archive: Path, paths: Sequence[str]) -> int:
    """See the module."""
    found = read(archive, paths)
    if found is None:
        print(f"{archive}: none of {', '.join(paths)} is in it", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
