"""Tables that take a tenth of a second or more: each is made once in a process, whoever asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def made_once(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """As `lru_cache` of so many, of which threads that ask at the same time wait for the first: they would else make
    the same several times, each as long as all of them take."""

    def decorated(make: Callable[P, T]) -> Callable[P, T]:
        kept: Callable[..., T] = lru_cache(maxsize=most)(make)
        turn = threading.Lock()

        @wraps(make)
        def get(*args: P.args, **named: P.kwargs) -> T:
            with turn:
                return kept(*args, **named)

        return get

    return decorated
