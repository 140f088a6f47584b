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


def test_what_is_written_of_each_kind_builds_installs_passes_its_test_and_is_clean(tmp_path: Path) -> None:
    """All kinds at once, for starting the tools is what takes the time."""
    packages = {kind: f"my_{kind.replace('-', '_')}" for kind in kinds()}
    for kind, name in packages.items():
        done = CliRunner().invoke(build(), ["new", kind, name, "--into", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert str(tmp_path / name / "src" / name / "__init__.py") in done.output.splitlines()
        assert "$" not in "".join(path.read_text() for path in (tmp_path / name).rglob("*") if path.is_file())
    folders = [f"./{name}" for name in packages.values()]
    offline = ("-q", "--no-deps", "--no-index")
    site = tmp_path / "site"
    run("-m", "pip", "install", *offline, "--no-build-isolation", "--target", str(site), *folders, cwd=tmp_path)
    offered = run("-m", "hanse_fabric.plugins", cwd=tmp_path, path=site)
    assert all(f"{kind} {name} of {name} 0.1.0 " in offered for kind, name in packages.items())
    tests = [f"{folder}/tests/test_{folder[2:]}.py" for folder in folders]
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=tmp_path, path=site)
    run("-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,B,UP", *folders, cwd=tmp_path)
    run("-m", "ruff", "format", "--isolated", "--check", "--line-length", "120", *folders, cwd=tmp_path)


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
