"""Programs that the demonstration runs end: by themselves, or at their limit."""

from __future__ import annotations

import pytest

from hanse.demo.program import output_of
from hanse_fabric.errors import ErrorCode, HanseError


async def test_the_output_of_a_demonstration_program_is_returned() -> None:
    assert "usage" in (await output_of("json.tool", "--help")).lower()


async def test_a_program_that_does_not_end_is_killed_at_its_limit() -> None:
    with pytest.raises(HanseError, match="not done within") as caught:
        await output_of("http.server", "0", "--bind", "127.0.0.1", limit=0.5)
    assert caught.value.code is ErrorCode.TIMEOUT


async def test_a_program_that_fails_is_named_with_its_output() -> None:
    with pytest.raises(HanseError, match="No such file"):
        await output_of("json.tool", "/nonexistent")
