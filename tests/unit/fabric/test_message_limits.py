"""The largest message, and what a refusal says of the fields that do not fit."""

from __future__ import annotations

import json
import random
import zlib
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)  # fmt: skip

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import base
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.explained import explain
from hanse_fabric.names import Slug
from hanse_fabric.strict_json import SMALL


class Note(Message):
    """Text, and a list that may hold wrong things."""

    schema_id: ClassVar[str] = "hanse.note/1"
    text: str = ""
    numbers: tuple[int, ...] = ()


def test_a_message_at_the_limit_passes_and_one_byte_more_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Note(text="x" * 100).encode()
    monkeypatch.setattr(base, "MAX_MESSAGE_BYTES", len(data))
    assert Note.decode(Note(text="x" * 100).encode()).text == "x" * 100
    monkeypatch.setattr(base, "MAX_MESSAGE_BYTES", len(data) - 1)
    for call in (lambda: Note(text="x" * 100).encode(), lambda: Note.decode(data)):
        with pytest.raises(HanseError, match=str(len(data))) as refusal:
            call()
        assert refusal.value.code is ErrorCode.TOO_LARGE


def test_the_limit_is_what_the_bus_carries() -> None:
    assert base.MAX_MESSAGE_BYTES == 1_048_576


def test_a_body_is_deflated_above_32_kib_alone() -> None:
    for length, deflated in ((1000, False), (40_000, True)):
        text = "".join(random.Random(1).choices("abcdefgh", k=length))
        assert (Note(text=text).encode()[:1] == b"x") is deflated
        assert Note.decode(Note(text=text).encode()).text == text
    whole = (32 << 10) - len(Note(text="y").encode()) + 1
    assert Note(text="y" * whole).encode()[:1] == b"{"
    assert Note(text="y" * (whole + 1)).encode()[:1] == b"x"


def test_what_inflates_beyond_the_limit_is_refused_before_it_is_whole() -> None:
    for size, refused in ((SMALL.size, False), (SMALL.size + 1, True)):
        body = b'{"schema":"hanse.note/1"}'
        data = zlib.compress(body + b" " * (size - len(body)), 9)
        if not refused:
            assert Note.decode(data) == Note()
            continue
        with pytest.raises(HanseError, match="inflates to more than") as refusal:
            Note.decode(data)
        assert refusal.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"), (b"[]", "list given, an object was expected"), (b"x no deflate", "not a deflated message"),
        (b"{", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(HanseError, match=words) as refusal:
        Note.decode(data)
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def refused(**body: object) -> str:
    with pytest.raises(HanseError) as refusal:
        Note.decode(json.dumps({"schema": "hanse.note/1"} | body).encode())
    return refusal.value.message


def test_a_refusal_names_each_field_the_value_and_what_was_expected() -> None:
    said = refused(text=3, numbers=[1, "two"])
    assert "text: Input should be a valid string (given 3)" in said
    assert "numbers.1: " in said
    assert "(given 'two')" in said
    assert "errors.pydantic.dev" not in said


def test_a_value_is_shown_in_80_characters_at_most() -> None:
    assert f"(given {'a' * 78!r})" in refused(numbers="a" * 78)
    assert f"(given '{'a' * 76}...)" in refused(numbers="a" * 79)


class Pair(Message):
    """Two numbers in order."""

    schema_id: ClassVar[str] = "hanse.pair/1"
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Pair:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def test_a_refusal_of_the_fields_together_is_of_the_message() -> None:
    with pytest.raises(HanseError) as refusal:
        Pair.decode(b'{"schema": "hanse.pair/1", "low": 2, "high": 1}')
    assert refusal.value.message == "hanse.pair/1: low is above high", "what was given is not told: it is all of it"


def test_five_fields_are_named_and_no_more() -> None:
    assert refused(numbers=["x"] * 9).count("numbers.") == 5


class Lamp(Message):
    """Choices, and a number with a check of its own."""

    schema_id: ClassVar[str] = "hanse.lamp/1"
    colour: Literal["red", "green"]
    watts: int = 1
    settings: dict[str, Any] = {}

    @field_validator("watts")
    @classmethod
    def odd(cls, watts: int) -> int:
        if watts % 2 == 0:
            raise ValueError("an odd number is needed")
        return watts


def test_of_a_choice_the_nearest_is_named_and_of_a_check_of_one_field_the_value() -> None:
    with pytest.raises(HanseError, match=r"colour: .*, did you mean green\? \(given 'gren'\)"):
        Lamp.decode(b'{"schema": "hanse.lamp/1", "colour": "gren"}')
    with pytest.raises(HanseError, match=r"watts: an odd number is needed \(given 2\)"):
        Lamp.decode(b'{"schema": "hanse.lamp/1", "colour": "red", "watts": 2}')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "red", "watt": 3}, "watt: Extra inputs are not permitted, did you mean watts? (given 3)"),
        ({"colour": "red", "zzz": 3}, "zzz: Extra inputs are not permitted (given 3)"),
        ({"colour": 3}, "colour: Input should be 'red' or 'green' (given 3)"),
        ({"colour": "red", "settings": 5}, "settings: a section is needed, as {key: value}, not a number (given 5)"),
        ([], "a section is needed, as {key: value}, not a list (given [])"),
    ],
)
def test_each_mistake_is_told_in_the_words_of_who_writes_it(given: object, said: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        Lamp.model_validate(given)
    assert explain(wrong.value, Lamp) == said


class Wave(Frozen):
    """Of several forms, by its name."""

    name: Literal["wave"]
    length: int


class Pulse(Frozen):
    """The other one."""

    name: Literal["pulse"]
    times: tuple[int, ...] | int


class Signal(Message):
    """Fields of several forms, in lists and mappings."""

    schema_id: ClassVar[str] = "hanse.signal/1"
    size: int | Literal["auto"] = 1
    light: Annotated[Wave | Pulse, Field(discriminator="name")] | None = None
    lights: tuple[Annotated[Wave | Pulse, Field(discriminator="name")], ...] = ()
    by_colour: dict[str, Wave | int] = {}
    anything: dict[str, dict[str, int]] = {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"size": "big"},
            "size: Input should be a valid integer, unable to parse string as an integer, or Input should be 'auto' "
            "(given 'big')",
        ),
        ({"light": {"name": "wave", "length": []}}, "light.length: Input should be a valid integer (given [])"),
        ({"light": {"name": "wave"}}, "light.length: Field required (given {'name': 'wave'})"),
        ({"light": {"name": "wave", "lenght": 1, "length": 1}}, "light.lenght: Extra inputs are not permitted, did "
         "you mean length? (given 1)"),
        ({"lights": [{"name": "pulse", "times": [1, []]}]}, "lights.0.times.1: Input should be a valid integer (given "
         "[]); lights.0.times: Input should be a valid integer (given [1, []])"),
        ({"by_colour": {"int": {"name": "wave", "length": []}}}, "by_colour.int.length: Input should be a valid "
         "integer (given []); by_colour.int: Input should be a valid integer (given {'name': 'wave', 'length': []})"),
        ({"anything": {"literal[x]": {"int": []}}}, "anything.literal[x].int: Input should be a valid integer "
         "(given [])"),
    ],
)  # fmt: skip
def test_of_a_field_of_several_forms_its_place_is_told_and_not_what_pydantic_calls_its_forms(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(HanseError) as refusal:
        Signal.decode(json.dumps({"schema": "hanse.signal/1", **given}).encode())
    assert refusal.value.message == f"hanse.signal/1: {said}"


def test_where_a_list_is_needed_it_is_said_how_one_is_written() -> None:
    assert "numbers: a list is needed, as [one, another] (given 5)" in refused(numbers=5)


class Crate(Message):
    """Texts with patterns: a name's, which has words, and another."""

    schema_id: ClassVar[str] = "hanse.crate/1"
    name: Slug = "a"
    code: Annotated[str, StringConstraints(pattern="^[xyz]$")] = "x"


def test_of_a_pattern_that_has_words_they_are_told_and_of_another_the_pattern() -> None:
    with pytest.raises(HanseError) as refusal:
        Crate.decode(b'{"schema": "hanse.crate/1", "name": "A b", "code": "no"}')
    assert refusal.value.message == (
        "hanse.crate/1: name: lower-case letters, digits and hyphens within, 63 characters at most (given 'A b'); "
        "code: String should match pattern '^[xyz]$' (given 'no')"
    )


class Login(BaseModel):
    """A form with a secret."""

    password: SecretStr
    port: int


@pytest.mark.parametrize("given", [{"password": "hunter2", "port": "hunter2"}, "hunter2"])
def test_of_what_was_given_for_a_form_with_secrets_nothing_is_told(given: object) -> None:
    with pytest.raises(ValidationError) as wrong:
        Login.model_validate(given)
    assert "hunter2" not in explain(wrong.value, Login)
    assert "(given " in explain(wrong.value), "the control: of another form it is"


def test_half_a_character_is_sent_to_nobody() -> None:
    with pytest.raises(HanseError, match="lone surrogate") as refusal:
        Lamp(colour="red", settings={"name": "\ud800"}).encode()
    assert refusal.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_sent_to_nobody_and_not_told_as_nothing(number: float) -> None:
    with pytest.raises(HanseError, match="is not finite numbers") as refusal:
        Lamp(colour="red", settings={"rates": [{"lr": number}]}).encode()
    assert refusal.value.code is ErrorCode.INVALID_INPUT


class Member(Frozen):
    """Of a release ago, but for the note."""

    name: str
    note: str | None = None


class Order(Message):
    """Fields of which each may be wrong."""

    schema_id: ClassVar[str] = "hanse.order/1"
    numbers: tuple[int, ...]
    text: str
    member: Member


def test_a_field_that_the_message_has_not_is_named_first_and_the_others_in_their_order() -> None:
    """What else is wrong often follows from it."""
    body = {"schema": "hanse.order/1", "numbers": ["x"], "text": 1, "member": {"name": "a", "zzz": 1}, "yyy": 1}
    with pytest.raises(HanseError) as refusal:
        Order.decode(json.dumps(body).encode())
    told = [part.split(": ")[0] for part in refusal.value.message.removeprefix("hanse.order/1: ").split("; ")]
    assert told == ["yyy", "numbers.0", "text", "member.zzz"]


class Members(Message):
    """A list of which any may have what has come since."""

    schema_id: ClassVar[str] = "hanse.members/2"
    grown: ClassVar = ("hanse.members/1", frozenset({"members.note"}))
    members: tuple[Member, ...]


@pytest.mark.parametrize(("notes", "version"), [((None, None), 1), ((None, "n"), 2), (("n", None), 2), (("n", "n"), 2)])
def test_a_list_is_of_the_newer_version_as_soon_as_one_in_it_has_grown(
    notes: tuple[str | None, ...], version: int
) -> None:
    data = Members(members=tuple(Member(name="a", note=note) for note in notes)).encode()
    assert json.loads(data)["schema"] == f"hanse.members/{version}"
    if version == 2:
        with pytest.raises(HanseError, match="is not one that is understood here"):
            Members.decode(data.replace(b"members/2", b"members/1"))


def test_a_list_of_other_things_is_refused_in_words_whatever_its_version() -> None:
    for version in (1, 2):
        with pytest.raises(HanseError, match=r"members\.0: a section is needed") as refusal:
            Members.decode(b'{"schema": "hanse.members/%d", "members": ["x"]}' % version)
        assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_another_kind_is_refused_though_it_has_the_fields_of_the_version_before() -> None:
    with pytest.raises(HanseError) as refusal:
        Members.decode(b'{"schema": "hanse.others/1", "members": [{"name": "a"}]}')
    assert refusal.value.code is ErrorCode.UNKNOWN_SCHEMA


@pytest.mark.parametrize(
    ("data", "newer"),
    [
        (b'{"schema": "hanse.members/1"}', False), (b'{"schema": "hanse.members/2"}', False),
        (b'{"schema": "hanse.members/3"}', True), (b'{"schema": "hanse.note/3"}', False), (b"{}", False), (b"{", False),
    ],
)  # fmt: skip
def test_of_a_newer_release_is_what_has_this_kind_and_a_version_that_is_not_known(data: bytes, newer: bool) -> None:
    assert Members.is_newer(data) is newer


def test_a_body_that_no_reader_would_take_is_not_written_however_small_it_deflates() -> None:
    with pytest.raises(HanseError) as refusal:
        Note(text="y" * SMALL.size).encode()
    assert refusal.value.code is ErrorCode.TOO_LARGE


def test_a_deflated_body_has_the_same_bytes_in_every_release() -> None:
    """Digests of messages are signed."""
    text = "".join(random.Random(1).choices("abcdefgh", k=40_000))
    assert Note(text=text).encode() == zlib.compress(Note(text=text).canonical(), 6)
