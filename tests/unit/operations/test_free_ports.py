"""Ports for servers that are started later: nobody else may take them meanwhile, nor may two servers get the same."""

from __future__ import annotations

import socket

from hanse_operations.servers.program import free_ports


def test_no_port_is_given_twice_though_none_was_opened_yet() -> None:
    given = [port for _ in range(40) for port in free_ports(5)]
    shifted = [one for _ in range(20) for port in free_ports(5, shifted=10_000) for one in (port, port + 10_000)]
    assert len({*given, *shifted}) == len(given) + len(shifted)


def test_ports_lie_below_those_of_outgoing_connections_and_can_be_opened() -> None:
    for port in free_ports(3, shifted=10_000):
        assert 1024 < port < port + 10_000 < 32_768
        for one in (port, port + 10_000):
            with socket.create_server(("127.0.0.1", one)):
                pass


def test_a_port_that_is_in_use_is_not_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert taken.getsockname()[1] not in free_ports(50)
