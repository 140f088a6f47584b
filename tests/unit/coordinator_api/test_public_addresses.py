"""What the hub tells of the addresses and the certificates by which sites reach bus and store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from hanse_coordinator.app import _info, check_regions
from hanse_coordinator.settings import CoordinatorSettings
from hanse_fabric.errors import HanseError
from hub_api import FakeCredentials


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Path]:
    files = {"bus_ca": tmp_path / "bus.crt", "store_ca": tmp_path / "store.crt"}
    for name, file in files.items():
        file.write_text(f"PEM of {name}")
    return files


def test_sites_trust_the_ca_of_the_services_where_nothing_else_is_said(own: dict[str, Path]) -> None:
    info = _info(CoordinatorSettings(**own))
    assert (info.bus_ca, info.store_ca) == ("PEM of bus_ca", "PEM of store_ca")


def test_behind_a_proxy_sites_trust_what_their_systems_know(own: dict[str, Path]) -> None:
    settings = CoordinatorSettings(
        **own, bus_public_url="wss://bus.example.org", bus_public_ca="system", store_public_ca="system"
    )
    info = _info(settings)
    assert (info.bus_url, info.bus_ca, info.store_ca) == ("wss://bus.example.org", None, None)


def test_a_proxys_own_ca_goes_to_the_sites_instead(own: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "proxy.crt").write_text("PEM of the proxy")
    info = _info(CoordinatorSettings(**own, bus_public_ca=str(tmp_path / "proxy.crt")))
    assert (info.bus_ca, info.store_ca) == ("PEM of the proxy", "PEM of store_ca")


def test_a_ca_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"absent\.crt"):
        _info(CoordinatorSettings(bus_public_ca=str(tmp_path / "absent.crt")))


async def test_each_region_has_its_own_addresses() -> None:
    settings = CoordinatorSettings(bus_region_urls="eu=tls://a.example.org:4222,tls://b.example.org:4222 us=wss://c")
    assert dict(_info(settings).region_urls) == {
        "eu": "tls://a.example.org:4222,tls://b.example.org:4222", "us": "wss://c",
    }  # fmt: skip
    for wrong in ("eu", "eu=", "eu=http://a.example.org"):
        with pytest.raises(ValidationError, match="bus_region_urls"):
            CoordinatorSettings(bus_region_urls=wrong)


async def test_an_address_of_a_region_that_nobody_has_added_is_refused() -> None:
    with pytest.raises(HanseError, match="HANSE_BUS_REGION_URLS: 'us' is not one of hub, eu"):
        await check_regions(CoordinatorSettings(bus_region_urls="eu=tls://a:4222 us=tls://b:4222"), FakeCredentials())
