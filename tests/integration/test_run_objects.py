"""What the coordinator's own identity may tidy in a real store."""

from __future__ import annotations

from typing import Any

from hanse_coordinator.verbs.objects import RunObjects


async def test_the_coordinator_removes_all_objects_of_a_run_that_has_ended_and_of_no_other(weed: Any) -> None:
    admin, own = weed.store(), weed.store("coordinator")
    kinds = ("models", "updates", "masks")
    ended = [f"{kind}/tidied/{'a' * 12}/x" for kind in kinds]
    others = [f"{kind}/tidied/{'b' * 12}/x" for kind in kinds]
    for key in ended + others:
        admin.put(key, b"x")
    await RunObjects(own, "tidied").clear("a" * 12, but={ended[0]})
    left = sorted(key for kind in kinds for key in admin.keys(f"{kind}/tidied/"))
    assert left == sorted([ended[0], *others])
    own.close()
    admin.close()
