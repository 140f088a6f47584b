"""What somebody sends to stop whoever reads it: every message is refused as a HanseError, in time and memory that are
bounded, or is a message that can be written again."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import Any, ClassVar

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Contribution, LinkRequest, Presence, Progress, Result
from hanse_fabric.messages.base import Message

PRESENCE: dict[str, Any] = {
    "schema": "hanse.presence/1", "project": "triage", "participant": "north", "version": "1",
    "sent_at": "2026-05-01T12:00:00Z",
}  # fmt: skip


class Anything(Message):
    """A message with a field that may hold any JSON."""

    schema_id: ClassVar[str] = "hanse.anything/1"
    config: dict[str, Any] = {}


def refusal(kind: type[Message], data: bytes) -> HanseError:
    with pytest.raises(HanseError) as refused:
        kind.decode(data)
    return refused.value


def anything(config: str) -> bytes:
    return b'{"schema": "hanse.anything/1", "config": ' + config.encode() + b"}"


def test_the_message_itself_is_read() -> None:
    assert Presence.decode(json.dumps(PRESENCE).encode()).participant == "north"


@pytest.mark.parametrize(
    "time", ["2026-05-01T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", 1e18, "2026-05-01"]
)
def test_a_time_without_a_zone_or_out_of_all_reason_is_refused(time: object) -> None:
    assert "sent_at" in refusal(Presence, json.dumps(PRESENCE | {"sent_at": time}).encode()).message


@pytest.mark.parametrize("depth", [65, 900, 5_000, 120_000])
@pytest.mark.parametrize(("opens", "closes"), [('{"a":', "}"), ("[", "]")])
def test_what_is_nested_deeply_is_refused(opens: str, closes: str, depth: int) -> None:
    said = refusal(Anything, anything('{"a":' + opens * depth + "1" + closes * depth + "}"))
    assert "nested" in said.message or "values" in said.message


def test_what_is_nested_as_a_job_may_be_is_read() -> None:
    assert Anything.decode(anything('{"a":' * 60 + "1" + "}" * 60)).config


def test_a_bomb_of_32_kib_costs_its_reader_some_megabytes_at_most() -> None:
    bomb = zlib.compress(b'{"schema": "hanse.anything/1", "config": {"a": [' + b"[]," * 10_000_000 + b"1]}}", 9)
    assert len(bomb) < 32 << 10
    tracemalloc.start()
    try:
        assert refusal(Anything, bomb).code is ErrorCode.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_more_values_than_any_message_needs_are_refused_before_they_are_made() -> None:
    assert "values" in refusal(Anything, anything('{"a": [' + "0," * 300_000 + "0]}")).message


@pytest.mark.parametrize("text", [r'"\ud800"', r'"a\udfffb"', r'{"\udc00": 1}', r'"\ude00\ud83d"'])
def test_half_a_character_is_refused(text: str) -> None:
    assert "surrogate" in refusal(Anything, anything('{"a": ' + text + "}")).message


def test_a_character_written_as_two_escapes_is_read() -> None:
    assert Anything.decode(anything(r'{"a": "\ud83d\ude00"}')).config == {"a": "\U0001f600"}


def test_half_a_character_in_bytes_and_other_encodings_are_refused() -> None:
    for data in (anything('{"a": "?"}').replace(b"?", b"\xed\xa0\x80"), anything("{}").decode().encode("utf-16")):
        assert refusal(Anything, data).code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", "1" * 400 + ".0"])
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    assert "finite" in refusal(Anything, anything('{"a": ' + number + "}")).message


@pytest.mark.parametrize("digits", [str(2**64), str(-(2**63) - 1), "1" * 4000, "1" * 5000], ids=len)
def test_an_integer_beyond_64_bits_is_refused(digits: str) -> None:
    assert "64 bits" in refusal(Anything, anything('{"a": ' + digits + "}")).message


def test_integers_of_64_bits_are_read() -> None:
    assert Anything.decode(anything(f'{{"a": [{2**64 - 1}, {-(2**63)}]}}')).config == {"a": [2**64 - 1, -(2**63)]}


@pytest.mark.parametrize("kind", [Presence, Progress, Result, Contribution, LinkRequest])
def test_a_message_all_of_wrong_fields_is_refused_in_few_words(kind: type[Message]) -> None:
    wrong = {f"wrong{index}": index for index in range(50_000)} | {"schema": kind.schema_id}
    assert len(refusal(kind, json.dumps(wrong).encode()).message) < 2_000


def test_what_is_too_long_to_be_read_is_not_written() -> None:
    with pytest.raises(HanseError, match="values") as refused:
        Anything(config={"a": [0] * 300_000}).encode()
    assert refused.value.code is ErrorCode.TOO_LARGE
