"""The SDK is light: what scripts and sites' own pipelines import loads no numbers and no operator's tools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hanse

HEAVY = {
    "torch", "numpy", "scipy", "pandas", "kubernetes", "hanse_operations", "hanse_coordinator", "hanse_datapod",
    "hanse_learning", "hanse_privacy", "hanse_genomics",
}  # fmt: skip
"""Numbers, Kubernetes' clients (another's, and ours in hanse_operations), services and algorithms."""


def loaded_by(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after a statement."""
    program = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted(name.partition('.')[0] for name in sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(told.stdout))


def test_importing_the_sdk_loads_nothing_of_hanse_but_itself() -> None:
    loaded = loaded_by("import hanse")
    assert {name for name in loaded if name.startswith("hanse")} == {"hanse"}
    assert not loaded & (HEAVY | {"pydantic", "httpx", "nats", "minio", "aiohttp"})


def test_the_sdk_names_the_classes_of_what_it_returns_for_those_who_annotate_with_them() -> None:
    assert {"AsyncHub", "Hub", "Site", "TrainedModel", "HanseError"} <= set(hanse.__all__)
    for name in hanse.__all__:
        assert getattr(hanse, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'hanse' has no attribute 'Hubs'"):
        hanse.Hubs  # noqa: B018


def test_clients_joining_sites_and_the_command_line_load_no_numbers_and_no_operators_tools() -> None:
    """One interpreter does it all: what none of it loads is loaded by none of them."""
    statements = (
        "import hanse; hanse.connect('https://hub.example.org')",
        "hanse.aconnect('https://hub.example.org')",
        "import hanse.site",
        "import hanse.cli.app; hanse.cli.app.build()",
        "import hanse_schemas.job, hanse_schemas.schema, hanse_schemas.http.runs",
    )
    loaded = loaded_by("\n".join(statements))
    assert not loaded & HEAVY
    assert {"httpx", "typer", "hanse_schemas"} <= loaded


def test_a_command_that_needs_no_connection_to_a_hub_loads_none_and_no_other_command() -> None:
    program = "import sys; from hanse.cli.app import build; build('site'); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(told.stdout.split())
    assert "hanse.cli.site" in loaded
    assert not loaded & {"hanse.cli.run", "hanse.hub", "hanse_fabric.messages", "hanse_schemas.schema"}


def test_a_hub_without_its_distributions_is_refused_with_what_to_install(tmp_path: Path) -> None:
    commands = (["up"], ["demo"], ["gwas", "demo"])
    program = (
        "import sys; sys.modules['hanse_operations'] = None\n"
        "from hanse.cli import main\n"
        f"for command in {commands}:\n"
        "    sys.argv = ['hanse', *command]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        print(end.code, file=sys.stderr)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    lines = told.stderr.splitlines()
    for count, said in ((3, "hanse_operations: not installed"), (3, "hanse[hub]")):
        assert sum(said in line for line in lines) == count, told.stderr
    assert [line for line in lines if line.isdecimal()] == ["10", "10", "10"]


def test_the_guard_sees_what_is_loaded() -> None:
    assert {"hanse_operations", "hanse_fabric"} <= loaded_by("import hanse_operations.secrets.kubernetes")
