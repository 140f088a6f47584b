"""A few threads that share out a row of work, each with buffers of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hanse_fabric.errors import ErrorCode, HanseError


class Hand(Protocol):
    """What a thread works with."""

    @property
    def bytes_read(self) -> int: ...


H = TypeVar("H", bound=Hand)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Crew:
    """Works in `threads` threads, until `stop` is set."""

    threads: int
    stop: threading.Event

    def work(self, items: Sequence[T], begin: Callable[[], H], act: Callable[[H, T], None]) -> int:
        """Call `act` with every item. Items are begun in order.

        Args:
            begin: makes what a thread works with.

        Returns:
            Bytes that were read.

        Raises:
            HanseError: the first that `act` raised; CANCELLED when `stop` was set.
        """
        queue, lock, failed = iter(items), threading.Lock(), threading.Event()
        read = 0

        def run() -> None:
            nonlocal read
            hand = begin()
            try:
                while not failed.is_set():
                    if self.stop.is_set():
                        raise HanseError(ErrorCode.CANCELLED, "the reduction was stopped")
                    with lock:
                        item = next(queue, None)
                    if item is None:
                        return
                    act(hand, item)
            except BaseException:
                failed.set()
                raise
            finally:
                with lock:
                    read += hand.bytes_read

        count = max(1, min(self.threads, len(items)))
        with ThreadPoolExecutor(count, "leaf") as pool:
            for future in [pool.submit(run) for _ in itertools.repeat(None, count)]:
                future.result()
        return read
