"""What sites without Kubernetes copy: the `docker run` line of the docs, and the systemd unit with its files."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from deploy.charts import ROOT
from deploy.systemd_units import COPIED, UNITS, analyze, directives, machine_with
from hanse_datapod.cli import parser
from hanse_datapod.settings import DatapodSettings
from hanse_fabric.settings import PREFIX

UNIT = "hanse-datapod.service"
DOCS = ROOT / "docs" / "site-administrator.md"
SETTINGS = {f"{PREFIX}{name.upper()}" for name in DatapodSettings.model_fields} | {f"{PREFIX}CONFIG"}


def docker_line() -> list[str]:
    """The words of the line in the docs that has all that a container may be given."""
    section = DOCS.read_text().split("### A container\n")[1]
    found = re.search(r"^    docker run .*?[^\\]\n", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return shlex.split(found[0].replace("\\\n", " "))


def after(words: list[str], option: str) -> list[str]:
    """What stands after each `option`."""
    return [value for word, value in itertools.pairwise(words) if word == option]


def test_the_docker_line_sets_settings_that_exist_to_paths_that_it_mounts() -> None:
    words = docker_line()
    given = dict(each.partition("=")[::2] for each in after(words, "-e"))
    assert set(given) <= SETTINGS
    assert given["HANSE_TOKEN"] == "", "the token comes from the shell, not from the line"
    mounts = {Path(each.split(":")[1]): each.split(":")[2:] for each in after(words, "-v")}
    for value in given.values():
        if value.startswith("/"):
            (place,) = [mount for mount in mounts if Path(value).is_relative_to(mount)]
            assert mounts[place] == ["ro"], value
    assert mounts[DatapodSettings.model_fields["home"].default] == [], "the home is a volume that can be written"


def test_the_docker_line_gives_the_container_nothing_that_it_does_not_need() -> None:
    words = docker_line()
    assert "--read-only" in words
    assert after(words, "--cap-drop") == ["ALL"]
    assert after(words, "--security-opt") == ["no-new-privileges"]
    assert after(words, "--tmpfs")[0].startswith("/tmp:")  # noqa: S108
    assert not {"-p", "--publish", "--privileged", "--network", "--user"} & set(words)
    assert words[-1] == "hanse-datapod:0.1.0"


def test_the_unit_sets_settings_that_exist_and_calls_a_command_that_exists() -> None:
    given = dict(each.partition("=")[::2] for each in directives(UNIT)["Environment"])
    assert set(given) <= SETTINGS
    assert given["HANSE_HOME"] == f"%S/{directives(UNIT)['StateDirectory'][0]}"
    (command,) = directives(UNIT)["ExecStart"]
    _, dash_m, module, *arguments = shlex.split(command)
    assert (dash_m, module) == ("-m", "hanse_datapod")
    assert parser(rehearsals=False).parse_args(arguments).command == "run"
    assert float(directives(UNIT)["TimeoutStopSec"][0]) > float(given["HANSE_GRACE"])


def test_the_unit_is_hardened() -> None:
    found = directives(UNIT)
    for name, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "CapabilityBoundingSet": "",
        "RestrictNamespaces": "yes",
        "UMask": "0077",
        "StateDirectoryMode": "0700",
    }.items():
        assert found[name] == [value], name
    assert found["User"][0] not in ("", "root")
    assert found["User"][0] in (UNITS / "hanse-datapod.sysusers").read_text()


def test_the_settings_file_of_the_unit_has_settings_that_exist() -> None:
    text = (UNITS / "datapod.yaml").read_text()
    assert set(yaml.safe_load(text)) <= set(DatapodSettings.model_fields)
    offered = set(re.findall(r"^#? ?([a-z_]+):", text, re.MULTILINE))
    assert offered <= set(DatapodSettings.model_fields)
    assert directives(UNIT)["LoadCredential"] == ["datapod.yaml:/etc/hanse/datapod.yaml"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return machine_with(tmp_path, UNIT, "python")


def test_systemd_understands_every_line_of_the_unit_and_the_drop_in_for_gpus(machine: Path) -> None:
    shutil.copy(UNITS / "gpu.conf", machine / COPIED / f"{UNIT}.d")
    done = analyze(machine, UNIT, "verify", "--man=no")
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_the_unit_hardly_exposed(machine: Path) -> None:
    done = analyze(machine, UNIT, "security", "--offline=true", "--threshold=30")
    assert done.returncode == 0, done.stdout
