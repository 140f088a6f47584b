"""The form of every message on the bus: JSON with a `schema` field, unknown fields refused, old versions upgraded.

A message class names its schema as `hanse.<kind>/<version>`. When a version is succeeded, the class takes the new
number and registers in `upgrades` how a body of the version before becomes one of the new: sites upgrade when their
administrators please, so the previous version stays understood.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, ClassVar, Self, get_args

from pydantic import ConfigDict, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen as Frozen
from hanse_fabric.messages.nearest import nearest_key, nearest_of
from hanse_fabric.messages.places import place_of
from hanse_fabric.names import IN_WORDS
from hanse_fabric.strict_json import SMALL, JsonLimits, check_size, parse_json

MAX_MESSAGE_BYTES = 1 << 20
"""No message is larger on the wire. Control messages stay below 256 KiB; only journals and reduction jobs of very
many participants come near the limit."""

_DEFLATE_ABOVE = 32 << 10
_ZLIB_FIRST_BYTE = 0x78


class Message(Frozen):
    """A message of its own on the bus. Subclasses set `schema_id`."""

    # Else a number that is none, in a mapping of anything, would be told as one that nobody gave.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    schema_id: ClassVar[str]
    limits: ClassVar[JsonLimits] = SMALL
    """What a body may hold. LARGE where services alone write it, and it grows with the participants."""
    upgrades: ClassVar[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {}
    grown: ClassVar[tuple[str, frozenset[str]]] = ("", frozenset())
    """The version before, and the fields that have come since (`seed.request`: of the field `seed`): without these a
    message is written as of that version, so that peers of that release understand it."""

    def encode(self) -> bytes:
        """Canonical bytes: sorted keys, no spaces, the schema first in meaning though not in order.

        Bodies above 32 KiB are deflated. The same message gives the same bytes on every machine.

        Raises:
            HanseError: TOO_LARGE, where no reader would take it; INVALID_INPUT for half a character, and for a number
                that is not finite.
        """
        body = self.canonical()
        check_size(body, self.schema_id, self.limits)
        encoded = zlib.compress(body, 6) if len(body) > _DEFLATE_ABOVE else body
        if len(encoded) > MAX_MESSAGE_BYTES:
            raise HanseError(
                ErrorCode.TOO_LARGE,
                f"{self.schema_id}: {len(encoded)} bytes encoded, at most {MAX_MESSAGE_BYTES} are allowed",
            )
        return encoded

    def canonical(self, *, without: frozenset[str] = frozenset()) -> bytes:
        """The JSON that is signed and sent; `without` leaves out fields (the signature over the rest)."""
        body = self.model_dump(mode="json", exclude=set(without), exclude_none=True)
        body["schema"] = self.schema_id if self._has_grown(body) else self.grown[0]
        try:
            return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            raise invalid(self.schema_id, self, "text of whole characters (a lone surrogate is none)") from None
        except ValueError:  # of json
            raise invalid(self.schema_id, self, "finite numbers") from None

    @classmethod
    def _has_grown(cls, body: dict[str, Any]) -> bool:
        before, since = cls.grown
        return not before or any(_holds(body, field) for field in since)

    @classmethod
    def understood(cls) -> tuple[str, ...]:
        """The schemas that `decode` reads, the newest first."""
        return (cls.schema_id, *cls.upgrades, *filter(None, cls.grown[:1]))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a message of this class.

        Raises:
            HanseError: TOO_LARGE, UNKNOWN_SCHEMA (another kind, or a version this release does not know) or
                INVALID_INPUT naming the field, the value and what was expected.
        """
        body = _read_json(data, cls.schema_id, cls.limits)
        schema = body.pop("schema", None)
        if schema != cls.schema_id and (schema != cls.grown[0] or cls._has_grown(body)):
            upgrade = cls.upgrades.get(str(schema))
            if upgrade is None:
                raise HanseError(
                    ErrorCode.UNKNOWN_SCHEMA,
                    f"schema: {schema!r} is not one that is understood here ({', '.join(cls.understood())})",
                    hint="upgrade the older of the two sides",
                )
            body = upgrade(body)
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{cls.schema_id}: {explain(error, cls)}") from None

    @classmethod
    def is_newer(cls, data: bytes) -> bool:
        """Whether it says that it is of this kind, and of a version that this release does not know."""
        try:
            schema = str(_read_json(data, cls.schema_id, cls.limits).get("schema"))
        except HanseError:
            return False
        return schema.startswith(f"{cls.schema_id.rpartition('/')[0]}/") and schema not in cls.understood()


_LISTS = frozenset({"tuple_type", "list_type", "set_type", "frozen_set_type"})
_LIST_EXPECTED = "a list is needed, as [one, another]"
"""What people who write YAML and JSON call it."""
_SECTIONS = frozenset({"dict_type", "model_type", "model_attributes_type"})
_KINDS = {
    list: "a list", tuple: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number",
    date: "a date", datetime: "a date", type(None): "nothing",
}  # fmt: skip
_TOLD = 5
_OF_PYDANTIC = "Value error, "
"""What it puts before the words of our own checks."""


def explain(error: ValidationError, form: object = None) -> str:
    """A validation error in one line: each field, what was given, what was expected.

    Args:
        form: the model that was expected: of a key that it has not, the nearest that it has is told. Of what was given
            for one that holds secrets nothing is told.
    """
    hides = _holds_secrets(form)
    told: dict[tuple[str, str], list[str]] = {}
    items = error.errors(include_url=False)
    for item in sorted(items, key=_is_of_the_whole)[:_TOLD]:
        field = ".".join(map(str, place_of(form, item["loc"])))
        shown = repr(item.get("input"))
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        wanted = expected(item)
        if item["type"] == "extra_forbidden":
            meant = nearest_key(form, item["loc"])
            wanted += f", did you mean {meant}?" if meant else ""
        elif (meant := _nearest_value(item)) is not None:
            wanted += f", did you mean {meant}?"
        of_whole = not field and item["type"] == "value_error"  # it says itself which fields do not go together
        told.setdefault((field, "" if hides or of_whole else f" (given {shown})"), []).append(wanted)
    return "; ".join(
        f"{field}: {', or '.join(each)}".removeprefix(": ") + given for (field, given), each in told.items()
    )


def expected(item: ErrorDetails) -> str:
    """What was expected, in our words where pydantic's are for programmers."""
    if item["type"] in _LISTS:
        return _LIST_EXPECTED
    if item["type"] in _SECTIONS:
        return f"a section is needed, as {{key: value}}, not {_KINDS.get(type(item['input']), 'another kind of value')}"
    said = item["msg"].removeprefix(_OF_PYDANTIC)
    return IN_WORDS.get(item["ctx"]["pattern"], said) if item["type"] == "string_pattern_mismatch" else said


def _is_of_the_whole(item: ErrorDetails) -> bool:
    """False for a key that the whole has not, and so first: what else is wrong often follows from it."""
    return not (item["type"] == "extra_forbidden" and len(item["loc"]) == 1)


def _nearest_value(item: ErrorDetails) -> str | None:
    """Of few values that may stand there, the one that was probably meant."""
    context = item.get("ctx") or {}
    match item["type"]:
        case "literal_error" | "enum":
            given, known = item.get("input"), context.get("expected")
        case "union_tag_invalid":
            given, known = context.get("tag"), context.get("expected_tags")
        case _:
            return None
    return nearest_of(given, re.findall(r"'([^']*)'", str(known))) if isinstance(given, str) else None


def _holds_secrets(form: object) -> bool:
    fields = getattr(form, "model_fields", {}).values()
    return any(SecretStr in (field.annotation, *get_args(field.annotation)) for field in fields)


def _holds(body: object, field: str) -> bool:
    if isinstance(body, list):
        return any(_holds(each, field) for each in body)
    name, _, rest = field.partition(".")
    return isinstance(body, dict) and body.get(name) is not None and (not rest or _holds(body[name], rest))


def _read_json(data: bytes, schema_id: str, limits: JsonLimits) -> dict[str, Any]:
    if len(data) > MAX_MESSAGE_BYTES:
        raise HanseError(ErrorCode.TOO_LARGE, f"{schema_id}: {len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
    if data[:1] and data[0] == _ZLIB_FIRST_BYTE:
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(data, limits.size)
        except zlib.error as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{schema_id}: not a deflated message: {error}") from None
        if inflater.unconsumed_tail:
            raise HanseError(ErrorCode.TOO_LARGE, f"{schema_id}: inflates to more than {limits.size} bytes")
    body = parse_json(data, schema_id, limits)
    if not isinstance(body, dict):
        raise HanseError(ErrorCode.INVALID_INPUT, f"{schema_id}: {type(body).__name__} given, an object was expected")
    return body
