"""Addresses are counted by household, and a text that is none belongs nowhere."""

from __future__ import annotations

import pytest

from hanse_fabric.networks import household_of, is_loopback, is_within, networks_of


@pytest.mark.parametrize(
    ("address", "counted"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("nobody", "nobody"), ("", "")],
)
def test_of_ipv6_a_household_counts_as_one_address(address: str, counted: str) -> None:
    assert household_of(address) == counted


def test_an_address_is_within_the_networks_that_a_setting_lists() -> None:
    networks = networks_of("10.0.0.0/8, 2001:db8::/32,")
    assert is_within("10.1.2.3", networks)
    assert is_within("2001:db8::1", networks)
    assert not any(is_within(address, networks) for address in ("11.0.0.1", "2001:db9::1", "", "10.1.2"))
    with pytest.raises(ValueError, match="nobody"):
        networks_of("10.0.0.0/8, nobody")


@pytest.mark.parametrize(
    ("name", "own"), [("localhost", True), ("127.0.0.9", True), ("::1", True), ("hub.example.org", False), ("", False)]
)
def test_a_machine_knows_its_own_names(name: str, own: bool) -> None:
    assert is_loopback(name) is own
