"""Where requests come from: addresses, the networks that they are in, and what of them counts as one."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Networks = Sequence[IPv4Network | IPv6Network]


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks that a text lists; ValueError where one is none."""
    return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())


def is_within(address: str, networks: Networks) -> bool:
    """Whether an address is in one of the networks; a text that is no address is in none."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    return any(ip in network for network in networks)


def household_of(address: str) -> str:
    """What is counted as one address: of IPv6 a network of 64 bits, for each household has one of these at least."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    return str(ip_network(f"{ip}/64", strict=False)) if isinstance(ip, IPv6Address) else address


def is_loopback(name: str) -> bool:
    """Whether a host's name or address is of the machine itself."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
