"""`hanse new`: what it writes is a package that builds, installs, passes its own test, and is found by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hanse.cli.app import build
from hanse.new import kinds, write
from hanse_fabric.errors import ErrorCode, HanseError


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    """What this Python prints."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)} | ({} if path is None else {"PYTHONPATH": str(path)})
    done = subprocess.run(
        [sys.executable, "-P", *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", kinds())
def test_what_is_written_builds_installs_passes_its_test_and_is_clean(kind: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(build(), ["new", kind, "my_first", "--into", str(tmp_path)])
    assert done.exit_code == 0, done.output
    package = tmp_path / "my_first"
    assert str(package / "src" / "my_first" / "__init__.py") in done.output.splitlines()
    assert "$" not in "".join(path.read_text() for path in package.rglob("*") if path.is_file())
    run("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", ".", cwd=package)
    wheel = next((package / "dist").glob("my_first-0.1.0-*.whl"))
    site = tmp_path / "site"
    run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel), cwd=tmp_path)
    assert f"{kind} my_first of my_first 0.1.0 " in run("-m", "hanse_fabric.plugins", cwd=tmp_path, path=site)
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=package, path=site)
    run("-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,B,UP", str(package), cwd=tmp_path)
    run("-m", "ruff", "format", "--isolated", "--check", "--line-length", "120", str(package), cwd=tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "code", "said"),
    [
        (
            "bus",
            "mine",
            ErrorCode.INVALID_INPUT,
            "kind: 'bus' is not one of algorithm, codec, server-optimizer, strategy",
        ),
        ("strategy", "My-mean", ErrorCode.INVALID_INPUT, "name: 'My-mean' is not a name of a-z"),
        ("strategy", "class", ErrorCode.INVALID_INPUT, "name: 'class' is not"),
        ("strategy", "median", ErrorCode.CONFLICT, "strategy median of hanse-learning 0.1.0 is installed"),
        ("strategy", "json", ErrorCode.CONFLICT, "a module json is installed"),
        ("strategy", "there", ErrorCode.CONFLICT, "there is there"),
    ],
)
def test_a_name_or_a_kind_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str, name: str, code: ErrorCode, said: str
) -> None:
    into = tmp_path / "into"
    (into / "there").mkdir(parents=True)
    with pytest.raises(HanseError) as caught:
        write(kind, name, into)
    assert caught.value.code is code
    assert said in caught.value.message
    assert [path.name for path in into.iterdir()] == ["there"]
