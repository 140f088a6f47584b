"""JetStream's errors that pass by themselves are waited for, others are raised at once."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from hanse_fabric.bus.api import ask
from hanse_fabric.errors import ErrorCode, HanseError


class Answering:
    """A connection whose requests are answered so, one after another."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [*answers]

    async def call(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(data=json.dumps(self.answers.pop(0)))


def error(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": err_code, "description": description}}


async def asked(*answers: dict[str, Any]) -> dict[str, Any]:
    deadline = asyncio.get_running_loop().time() + 60
    return await ask(Answering(*answers), "$JS.API.INFO", b"", deadline, "asking")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "passing",
    [
        error(503, 10008, "JetStream system temporarily unavailable"), error(500, 10118, "stream is offline"),
        error(500, 10194, "stream is offline: unsupported"), error(500, 10119, "consumer is offline"),
        error(500, 10195, "consumer is offline: unsupported"),
    ],
    ids=lambda given: given["error"]["description"],
)  # fmt: skip
async def test_what_is_offline_while_its_server_is_away_is_asked_again(passing: dict[str, Any]) -> None:
    """A consumer that a cluster has given to a server that it has not missed yet, too."""
    assert await asked(passing, {"done": True}) == {"done": True}


async def test_what_does_not_pass_by_itself_is_raised() -> None:
    with pytest.raises(HanseError, match="asking: consumer in pull mode") as caught:
        await asked(error(400, 10085, "consumer in pull mode requires a durable name"))
    assert caught.value.code is ErrorCode.INTERNAL
