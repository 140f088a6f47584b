"""What operators without Kubernetes copy to run a hub that others use: the systemd unit with its files, and the compose
file with the image that it names."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from deploy.charts import ROOT
from deploy.systemd_units import COPIED, UNITS, analyze, directives, machine_with
from hanse.cli.app import build
from hanse.embedded.hub import _SERVER_GRACE
from hanse.embedded.processes import ChildSpec
from hanse.hub_here import DEFAULT_STATE
from hanse_fabric.settings import PREFIX, registered_settings

UNIT = "hanse-hub.service"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose-hub.yaml").read_text())
HUB: dict[str, Any] = COMPOSE["services"]["hub"]
PORT_OPTIONS = ("port", "bus_port", "store_port", "console_port")
DROP_INS = ("hub-certificate.conf", "hub-low-ports.conf")
GRACE_S = ChildSpec("any", ()).grace + _SERVER_GRACE
"""What a hub may take to stop: its services together, and then its servers."""


@functools.cache
def _up() -> Any:
    """The command, which takes a moment to build."""
    return typer.main.get_command(build()).commands["up"]  # type: ignore[attr-defined]


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The options of `hanse up`, as the command line itself reads them; a wrong one is an error."""
    found: dict[str, Any] = _up().make_context("up", list(words)).params
    return found


def environment() -> dict[str, str]:
    """Of the file that the unit reads."""
    lines = (UNITS / "hub.env").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))


def command(unit: str = UNIT, credentials: str = "/run/credentials") -> list[str]:
    """The words that systemd makes of ExecStart."""
    given, places = environment(), {"%S": "/var/lib", "%d": credentials}
    words: list[str] = []
    for word in shlex.split(directives(unit)["ExecStart"][-1]):
        if word.startswith("$") and word[1:] in given:  # split into words where it stands alone
            words += given[word[1:]].split()
            continue
        whole = re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], word)
        words.append(re.sub("%[Sd]", lambda found: places[found[0]], whole))
    return words


def test_the_unit_calls_the_command_with_options_that_it_has() -> None:
    program, up, *words = command()
    assert (program, up) == ("/opt/hanse/bin/hanse", "up")
    found = parsed(words)
    assert found["state"] == Path("/var/lib") / directives(UNIT)["StateDirectory"][0]
    assert found["public"] == environment()["HUB_NAME"]
    assert found["link"] is False, "a link for the first sign-in would be in the journal"
    assert len({found[name] for name in PORT_OPTIONS} - {None}) == len(PORT_OPTIONS)
    assert float(directives(UNIT)["TimeoutStopSec"][0]) > GRACE_S
    assert directives(UNIT)["KillMode"] == ["mixed"], "the services are stopped by `hanse up` itself"


def test_the_file_of_the_unit_has_names_that_somebody_reads() -> None:
    assert directives(UNIT)["EnvironmentFile"] == ["/etc/hanse/hub.env"]
    known = {f"{PREFIX}{name.upper()}" for kind in registered_settings().values() for name in kind.model_fields}
    offered = set(re.findall(r"^#? ?([A-Z_]+)=", (UNITS / "hub.env").read_text(), re.MULTILINE))
    assert offered <= known | {"HUB_NAME", "HUB_OPTIONS"}
    assert {name for each in directives(UNIT)["Environment"] for name in [each.partition("=")[0]]} <= known


def test_the_unit_keeps_every_restriction_that_the_datapod_s_has() -> None:
    ours, theirs = directives(UNIT), directives("hanse-datapod.service")
    own = {
        "User", "Group", "ExecStart", "Environment", "LoadCredential", "StateDirectory", "Description",
        "TimeoutStopSec",
    }  # fmt: skip
    sizes = {"MemoryMax", "TasksMax"}
    loosened = {name for name, values in theirs.items() if name not in own | sizes and ours.get(name) != values}
    # A hub reads nobody's home, and needs no calls by which a worker closes itself in.
    assert loosened == {"ProtectHome", "SystemCallFilter"}
    assert ours["ProtectHome"] == ["yes"]
    assert ours["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert ours["MemoryDenyWriteExecute"] == ["yes"]
    assert sizes <= ours.keys()
    assert ours["User"][0] not in ("", "root")
    assert f"u {ours['User'][0]} " in (UNITS / "hanse-hub.sysusers").read_text()


def test_the_drop_in_for_a_certificate_changes_nothing_but_the_certificate(tmp_path: Path) -> None:
    for name in ("hub.pem", "hub.key"):
        (tmp_path / name).touch()
    assert directives("hub-certificate.conf")["ExecStart"][0] == "", "the unit's own command is taken away first"
    loaded = [each.partition(":")[0] for each in directives("hub-certificate.conf")["LoadCredential"]]
    assert loaded == ["hub.pem", "hub.key"]
    given = parsed(command("hub-certificate.conf", str(tmp_path))[2:])
    own = parsed(command()[2:])
    assert {name for name in own if own[name] != given[name]} == {"cert", "key"}
    assert (given["cert"], given["key"]) == (tmp_path / "hub.pem", tmp_path / "hub.key")


def test_the_drop_in_for_low_ports_gives_one_capability() -> None:
    found = directives("hub-low-ports.conf")
    assert found == {
        "AmbientCapabilities": ["CAP_NET_BIND_SERVICE"], "CapabilityBoundingSet": ["CAP_NET_BIND_SERVICE"],
        "PrivateUsers": ["no"],
    }  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return machine_with(tmp_path, UNIT, "hanse")


def test_systemd_understands_every_line_of_the_unit_and_its_drop_ins(machine: Path) -> None:
    for name in (None, *DROP_INS):
        if name is not None:
            shutil.copy(UNITS / name, machine / COPIED / f"{UNIT}.d")
        done = analyze(machine, UNIT, "verify", "--man=no")
        assert (done.returncode, done.stderr) == (0, ""), name


def test_systemd_finds_the_unit_hardly_exposed(machine: Path) -> None:
    done = analyze(machine, UNIT, "security", "--offline=true", "--threshold=20")
    assert done.returncode == 0, done.stdout


def filled(text: str) -> str:
    """With the name that the compose file asks for."""
    return re.sub(r"\$\{HUB_NAME:\?[^}]*\}", "hub.example.org", text)


def test_the_compose_file_calls_the_command_with_options_that_it_has_and_publishes_its_ports() -> None:
    up, *words = (filled(word) for word in HUB["command"])
    assert up == "up"
    found = parsed(words)
    assert (found["public"], found["link"], found["state"]) == ("hub.example.org", False, DEFAULT_STATE)
    ports = [found[name] for name in PORT_OPTIONS]
    assert HUB["ports"] == [f"{port}:{port}" for port in ports], "what is told to others is the port inside"
    assert ports == [parsed(command()[2:])[name] for name in PORT_OPTIONS], "as in the unit: the docs name them once"
    assert [filled(host) for host in HUB["extra_hosts"]] == ["hub.example.org:127.0.0.1"]
    assert float(HUB["stop_grace_period"].removesuffix("s")) > GRACE_S


def test_the_container_is_confined_and_writes_to_its_volume_alone() -> None:
    assert (HUB["read_only"], HUB["cap_drop"]) == (True, ["ALL"])
    assert HUB["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= HUB.keys()
    assert not {"privileged", "user", "cap_add", "network_mode"} & HUB.keys()
    assert HUB["volumes"] == ["state:/var/lib/hanse-hub"]
    assert list(COMPOSE["volumes"]) == ["state"]


def stage(name: str) -> dict[str, list[str]]:
    """A stage of the Dockerfile: what stands behind each instruction."""
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    (body,) = re.findall(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in body.splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            found.setdefault(instruction, []).append(rest)
    return found


def test_the_image_that_the_compose_file_names_is_built_and_looks_after_itself() -> None:
    declared: Mapping[str, Any] = tomllib.loads((ROOT / "docker" / "images.toml").read_text())
    assert "hanse-hub:" in HUB["image"]
    assert "hub" in declared
    assert " hub " in (ROOT / "docker" / "build.sh").read_text().partition("images=${*:-")[2].partition("}")[0]
    found = stage("hub")
    assert found["ENTRYPOINT"] == ['["hanse"]']
    assert found["WORKDIR"] == found["VOLUME"] == ["/var/lib/hanse-hub"], "commands typed there find the hub"
    assert found["EXPOSE"][0].split() == [each.partition(":")[0] for each in HUB["ports"]]
    assert found["USER"][-1] == "65532:65532"
    (check,) = found["HEALTHCHECK"]
    _, _, probe = check.partition("CMD ")
    python, dash_m, module, folder = yaml.safe_load(probe)
    assert (python, dash_m, folder) == ("python", "-m", str(DEFAULT_STATE))
    assert find_spec(module) is not None


def test_the_docs_tell_of_each_file_and_of_the_ports() -> None:
    text = (ROOT / "docs" / "operator.md").read_text()
    for name in ("hanse-hub.service", "hanse-hub.sysusers", "hub.env", *DROP_INS):
        assert f"packaging/systemd/{name}" in text, name
    assert "docker/compose-hub.yaml" in text
    for published in HUB["ports"]:
        assert published.partition(":")[0] in text
