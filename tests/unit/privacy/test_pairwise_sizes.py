"""The messages of a hundred sites fit into tasks and results."""

from __future__ import annotations

from pathlib import Path

from hanse_privacy.pairwise.recovery import Recovery, decode_recovery, encode_recovery
from pairwise_sites import Rehearsal


def test_messages_of_a_hundred_sites_are_small(tmp_path: Path) -> None:
    """Measured at 4 and 24 sites: all but a constant is linear in their number."""
    sizes = {}
    for count in (4, 24):
        all_sites = Rehearsal(tmp_path / str(count), [f"participant-{at:03d}" for at in range(count)])
        request = all_sites.open("r100-train")
        orders = all_sites.share(request)
        notes = all_sites.mask(request, orders)
        asked, _ = all_sites.unmask(request, orders, notes)
        sizes[count] = {
            "request": len(request.canonical()),
            "share": len(orders.answers["participant-001"].canonical()),
            "order": len(orders.payloads["participant-001"]),
            "unmask": len(asked.payload),
        }
    for message, size in sizes[24].items():
        of_a_hundred = size + (size - sizes[4][message]) / 20 * 76
        assert of_a_hundred < 200 << 10, message


def test_a_recovery_is_read_as_it_was_written() -> None:
    recovery = Recovery((b"a" * 32, b"b" * 32), (b"c" * 32,))
    assert decode_recovery(encode_recovery(recovery)) == recovery
