"""The form of every message on the bus: JSON with a `schema` field, unknown fields refused, old versions upgraded.

A message class names its schema as `hanse.<kind>/<version>`. When a version is succeeded, the class takes the new
number and registers in `upgrades` how a body of the version before becomes one of the new: sites upgrade when their
administrators please, so the previous version stays understood.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen as Frozen
from hanse_fabric.messages.explained import explain
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
