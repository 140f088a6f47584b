"""What counts as the bus's address: one server, or several of one cluster, over TCP or WebSocket."""

from __future__ import annotations

import pytest

from hanse_fabric.bus.addresses import servers_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.settings import ServiceSettings, load_settings


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("nats://hub:4222", ["nats://hub:4222"]),
        ("tls://a,tls://b:1", ["tls://a", "tls://b:1"]),
        (" wss://hub.example.org/bus , wss://[::1]:443", ["wss://hub.example.org/bus", "wss://[::1]:443"]),
    ],
)
def test_an_address_names_one_server_or_several(url: str, servers: list[str]) -> None:
    assert servers_of(url) == servers


@pytest.mark.parametrize(
    "url", ["", "hub:4222", "http://hub", "nats://", "nats://hub:99999", "nats://a,", "nats://a,wss://b", "nats://[::1"]
)
def test_an_invalid_bus_address_is_refused_with_what_was_expected(url: str) -> None:
    with pytest.raises(HanseError, match="several of one cluster") as refusal:
        servers_of(url, "HANSE_BUS_URL")
    assert refusal.value.code is ErrorCode.INVALID_INPUT
    assert refusal.value.message.startswith("HANSE_BUS_URL")


def test_credentials_in_an_address_are_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HanseError) as refusal:
        servers_of("nats://somebody:hidden@hub:4222")
    assert "hidden" not in str(refusal.value)
    monkeypatch.setenv("HANSE_BUS_URL", "nats://somebody:hidden@hub:4222")
    with pytest.raises(HanseError) as refusal:
        load_settings(ServiceSettings)
    assert "hidden" not in str(refusal.value)


def test_a_setting_that_is_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_BUS_URL", "https://hub")
    with pytest.raises(HanseError, match="HANSE_BUS_URL: address"):
        load_settings(ServiceSettings)
    monkeypatch.setenv("HANSE_BUS_URL", "wss://hub,wss://other")
    assert load_settings(ServiceSettings).bus_url == "wss://hub,wss://other"
