"""Interpreters of other frameworks, each in an environment of its own, for their pins clash with ours and each other's;
packages that go beside ours, in a folder of their own, for they are large; and packages of npm's.

They are made once, below `~/.cache/hanse-peers`, and found there afterwards; `make test` makes them while it lints.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path.home() / ".cache" / "hanse-peers"
PINS = {"flower": ("flwr", "1.41.0"), "nvflare": ("nvflare", "2.9.0")}
WITH = ("scikit-learn",)
TORCH = "torch==2.13.0"
"""What `make bench-adapters` and `make test-large` add; tests of every day use it where it is there already."""
_MAKING_S = 900


def interpreter(kind: str, *, more: tuple[str, ...] = ()) -> Path:
    """The Python that has a framework, and `more` packages beside it.

    Raises:
        subprocess.SubprocessError: where it cannot be made.
    """
    name, version = PINS[kind]
    place = FOLDER / name
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:  # tests in several processes make it once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not has(place, name, version):
            shutil.rmtree(place, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(place))
        missing = [one for one in (f"{name}=={version}", *WITH, *more) if not _is_there(place, one)]
        if missing:
            _run(str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile", *missing)
    return place / "bin" / "python"


def interpreter_or_skip(kind: str, *, more: tuple[str, ...] = ()) -> Path:
    """The same in tests, which are skipped in words where it cannot be made."""
    try:
        return interpreter(kind, more=more)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"no interpreter with {' '.join(PINS[kind])} could be made: {error}")


PIPELINES = ("pytorch-lightning==2.6.6", "transformers==5.23.0", "peft==0.21.2", "accelerate==1.15.0", "monai==1.6.1")
_WITH_PIPELINES = (
    "tokenizers", "huggingface-hub", "httpx2", "httpcore2", "truststore", "hf-xet", "safetensors", "regex", "tqdm",
    "lightning-utilities",
)  # fmt: skip
"""What those need that Hanse's own environment does not have; torch and numpy are its own."""


def beside_ours_or_skip(packages: tuple[str, ...] = PIPELINES) -> Path:
    """A folder with packages that are used beside Hanse, for PYTHONPATH. Tests are skipped in words where it cannot be
    made."""
    place = FOLDER / "pipelines"
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with (FOLDER / "pipelines.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wanted = "\n".join((*packages, *_WITH_PIPELINES))
            made = place / "made-of"
            if not made.exists() or made.read_text() != wanted:
                shutil.rmtree(place, ignore_errors=True)
                target = ("--no-deps", "--target", str(place))
                _run(sys.executable, "-m", "pip", "install", "-q", "--no-compile", *target, *packages, *_WITH_PIPELINES)
                made.write_text(wanted)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"no folder with {' '.join(packages)} could be made: {error}")
    return place


def node_modules(sources: Path) -> Path | None:
    """A folder with the packages of these sources' lock file, by npm; None where it cannot be made."""
    lock = sources / "package-lock.json"
    place = FOLDER / f"npm-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "npm.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (place / "made").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for each in (lock, sources / "package.json"):
                shutil.copy(each, place)
            made = subprocess.run(["npm", "ci", "--no-fund", "--no-audit"], cwd=place, capture_output=True, timeout=180)
            if made.returncode != 0:
                return None
            (place / "made").touch()
    return place / "node_modules"


def has_torch(kind: str) -> bool:
    """Whether a framework's interpreter has PyTorch, which is too large to be fetched for each suite."""
    return _is_there(FOLDER / PINS[kind][0], TORCH)


def has(place: Path, name: str, version: str) -> bool:
    """Whether an environment has a package in a version, in whichever build (`2.13.0+cpu`)."""
    packages = f"lib/python*/site-packages/{name}"
    return any(any(place.glob(f"{packages}-{version}{build}.dist-info")) for build in ("", "+*"))


def _is_there(place: Path, requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    return has(place, name.split("[")[0].replace("-", "_"), version or "*")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_MAKING_S, capture_output=True)


def main() -> None:
    """Make all of them; tests of one that cannot be made skip and say so."""
    for kind in PINS:
        try:
            interpreter(kind, more=("pandas",))
        except (subprocess.SubprocessError, OSError) as error:
            print(f"no interpreter of {kind} could be made: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
