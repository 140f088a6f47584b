"""SeaweedFS's sockets in /tmp are gone after its end, however it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_operations.servers.program import free_ports
from hanse_operations.servers.seaweedfs import seaweedfs_program

if TYPE_CHECKING:
    from weed import Weed


def sockets() -> set[Path]:
    return set(Path("/tmp").glob("seaweedfs-*.sock"))  # noqa: S108


def test_no_socket_is_left_after_a_server_was_killed(new_weed: Callable[..., Weed]) -> None:
    weed = new_weed()
    its = set(weed.program.litter)
    end = time.monotonic() + 60
    while its - sockets():  # the admin server comes last; a name that is not right never comes
        assert time.monotonic() < end, its - sockets()
        time.sleep(0.05)
    weed.kill()
    assert not its & sockets()


def test_sockets_that_nobody_has_removed_are_removed_before_the_next_start(tmp_path: Path) -> None:
    left = seaweedfs_program(tmp_path, port=free_ports(1)[0]).litter
    for path in left:
        path.touch()
    now = seaweedfs_program(tmp_path, port=free_ports(1)[0])
    assert not set(left) & sockets()
    assert not set(left) & set(now.litter)
