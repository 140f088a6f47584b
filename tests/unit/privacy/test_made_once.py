"""Tables that take a while are made once, though several threads ask at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from hanse_privacy.noise.made_once import made_once


def test_threads_that_ask_at_the_same_time_have_one_that_was_made_once() -> None:
    made: list[int] = []
    asking = threading.Barrier(4)

    @made_once(2)
    def table(size: int) -> list[int]:
        """As long as it says."""
        made.append(size)
        threading.Event().wait(0.05)  # others would begin meanwhile
        return [0] * size

    def asked(size: int) -> list[int]:
        asking.wait()
        return table(size)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(asked, [3, 3, 5, 3]))
    assert sorted(made) == [3, 5]
    assert [len(each) for each in found] == [3, 3, 5, 3]
    assert found[0] is found[1] is found[3]
    assert (table.__name__, table.__doc__) == ("table", "As long as it says.")
