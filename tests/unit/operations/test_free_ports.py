"""Ports for servers that are started later: nobody else may take them meanwhile, nor may two servers get the same."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_operations.servers import program
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


def test_a_port_that_another_process_was_given_is_not_given_before_that_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chooses = "from hanse_operations.servers.program import free_ports; print(*free_ports(1), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", chooses], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(program, "_FIRST_PORT", port)
        monkeypatch.setattr(program, "_END_OF_PORTS", port + 1)
        with pytest.raises(HanseError) as refused:
            free_ports(1)
        assert refused.value.code is ErrorCode.UNAVAILABLE
        other.kill()
    assert free_ports(1) == [port]


def test_ports_are_given_on_and_on_though_only_the_last_ones_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_CLAIMS_KEPT", 3)
    first, *_ = [free_ports(1)[0] for _ in range(4)]
    with socket.socket(type=socket.SOCK_DGRAM) as claim:
        claim.bind(("127.0.0.1", first))
