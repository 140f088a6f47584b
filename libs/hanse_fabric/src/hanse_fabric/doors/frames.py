"""The form of requests at doors and of their answers.

A request is the site's signature, the length of its head, the head, and its content as it is. An answer is the digest
of the request, one byte (0: here is it; 1: refused), and its content.
"""

from __future__ import annotations

import hashlib

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.doors import DoorRequest, Refused

_PURPOSE = b"hanse door 1\0"
_SIGNATURE, _LENGTH, _DIGEST = 64, 2, 32
_DONE, _REFUSED = b"\0", b"\1"


def write_request(key: SigningKey, asked: DoorRequest, content: bytes) -> bytes:
    """A signed request."""
    head = asked.encode()
    signed = len(head).to_bytes(_LENGTH, "big") + head + content
    return key.sign(_PURPOSE + signed) + signed


def read_request(data: bytes) -> tuple[DoorRequest, bytes]:
    """Head and content of a request; its signature is `verify`'s.

    Raises:
        HanseError: INVALID_INPUT, UNKNOWN_SCHEMA for what is none.
    """
    start = _SIGNATURE + _LENGTH
    end = start + int.from_bytes(data[_SIGNATURE:start], "big")
    if len(data) < max(start, end):
        raise invalid("request", f"{len(data)} bytes", "a signed request: signature, length, head, content")
    return DoorRequest.decode(data[start:end]), data[end:]


def verify(data: bytes, key: bytes, who: str) -> None:
    """Hold a request against its site's raw Ed25519 key.

    Raises:
        HanseError: TAMPERED.
    """
    VerifyKey(key).verify(data[:_SIGNATURE], _PURPOSE + data[_SIGNATURE:], what=f"request of {who}")


def write_answer(request: bytes, content: bytes) -> bytes:
    return hashlib.sha256(request).digest() + _DONE + content


def write_refusal(request: bytes, error: HanseError) -> bytes:
    told = Refused(code=error.code.code, message=error.message[:4000], hint=error.hint[:1000])
    return hashlib.sha256(request).digest() + _REFUSED + told.encode()


def read_answer(request: bytes, answer: bytes) -> bytes:
    """What was answered to this very request.

    Raises:
        HanseError: TAMPERED for the answer to another; the refusal, where it is one.
    """
    digest, kind, content = answer[:_DIGEST], answer[_DIGEST : _DIGEST + 1], answer[_DIGEST + 1 :]
    if digest != hashlib.sha256(request).digest():
        raise HanseError(ErrorCode.TAMPERED, "door: the answer is to another request")
    if kind == _DONE:
        return content
    refused = Refused.decode(content)
    raise HanseError(ErrorCode.of(refused.code), refused.message, hint=refused.hint)
