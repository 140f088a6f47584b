"""An address where a folder belongs is refused before keys are written to folders of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hanse.embedded.hub import EmbeddedHub
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_fabric.settings import ServiceSettings, load_settings
from hanse_operations.__main__ import main

ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.parametrize("path", [ADDRESS, "https://hub.example.org/x", "nats://bus", "file:///data", "S3://bucket"])
def test_an_address_is_no_folder(path: str) -> None:
    for given in (path, Path(path)):
        with pytest.raises(HanseError, match=r"--to: .* is not a folder or file, but an address") as refusal:
            no_address(given, "--to")
        assert refusal.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("path", ["/data/http:/x", "data", "", "a:b/c", "C:/hanse"])
def test_unusual_names_of_folders_are_accepted(path: str) -> None:
    assert no_address(path, "--to") == path


@pytest.mark.parametrize("made", [BusAuthority, EmbeddedHub])
def test_nobody_makes_keys_in_an_address(
    made: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HanseError, match="folder: 'http:"):
        made(Path(ADDRESS))
    for form in ("--files", "--out"):
        assert main(["secrets", "--name", "hub", form, ADDRESS]) == ErrorCode.INVALID_INPUT.value.exit_status
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_names_a_file_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_BUS_CREDS", ADDRESS)
    with pytest.raises(HanseError, match=r"HANSE_BUS_CREDS: .*but an address"):
        load_settings(ServiceSettings)
