"""Sealed seeds open for the compensator they were sealed for, in the sum they were sealed for, and not otherwise."""

import hashlib
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import MaskShape, SealedSeed
from hanse_privacy.masks.seal import (
    SeedNote,
    open_sealed,
    roster_digest,
    seal,
    statement,
)

UNBOUND: dict[str, Any] = {
    "project": "heart", "run": "abcdefghijkl", "session": "r3-train-a1", "participant": "clinic-a",
}  # fmt: skip
CONTEXT = UNBOUND | {"request": b"q" * 32}
NOTE = SeedNote(b"s" * 32, 3, work=b"w" * 32)
KEY = SealingKey.create()
PRIVATE, PUBLIC = KEY.private_bytes, KEY.public_bytes


def refused(private: bytes, sealed: bytes, **changed: Any) -> None:
    with pytest.raises(HanseError, match="does not open") as caught:
        open_sealed(private, sealed, **(CONTEXT | changed))
    assert caught.value.code is ErrorCode.TAMPERED


@given(
    seed=st.binary(min_size=32, max_size=32), minimum=st.integers(1, 2**32 - 1), pins=st.booleans(),
    tag=st.none() | st.binary(min_size=16, max_size=16).filter(any),
)  # fmt: skip
def test_a_sealed_seed_opens_with_its_key_and_context(seed: bytes, minimum: int, pins: bool, tag: bytes | None) -> None:
    note = SeedNote(seed, minimum, hashlib.sha256(seed).digest() if pins else None, b"w" * 32, tag)
    assert open_sealed(PRIVATE, seal(PUBLIC, note, **CONTEXT), **CONTEXT) == note
    unbound = replace(note, work=None, tag=None)
    assert open_sealed(PRIVATE, seal(PUBLIC, unbound, **UNBOUND), **UNBOUND) == unbound


def test_a_seal_is_bound_to_its_request_and_to_none_or_any_it_does_not_open() -> None:
    sealed = seal(PUBLIC, NOTE, **CONTEXT)
    refused(PRIVATE, sealed, request=b"r" * 32)
    refused(PRIVATE, sealed, request=None)
    refused(PRIVATE, seal(PUBLIC, replace(NOTE, work=None), **UNBOUND))


def test_a_seal_says_what_work_it_is_of_where_it_is_bound_and_nowhere_else() -> None:
    for note, context in ((NOTE, UNBOUND), (replace(NOTE, work=None), CONTEXT)):
        with pytest.raises(HanseError, match="work"):
            seal(PUBLIC, note, **context)


def test_a_seed_sealed_by_the_former_release_still_opens() -> None:
    private = bytes(range(32))
    sealed = bytes.fromhex(
        "3a3db6ddc177e4166225d16072bef70167f0854160f219dcb902b318fb153e7a3e8c558b6ba4f573bbeeb1e1d42458586656"
        "1dcfb7d867fe49c502d2a5bad2d8488090104f3d14575aa261b4838186514f28ea6b89c91731f79b23802ccea18912861eb3"
        "7b2d89cc18d665e5c532c3954c6b59f15c"
    )
    assert open_sealed(private, sealed, **UNBOUND) == SeedNote(b"s" * 32, 5, b"r" * 32)


@pytest.mark.parametrize(
    ("sealed", "group", "note"),
    [
        (
            "963ae3c4fc1206e718a02add20bb894f0bccea6076f6acc2888d6868d5c3b60e5a54c248d05e55dc6f9236554cd2539093"
            "7c22c261d5caad16ae52a406752f52c07c0dbd1c7623413e84239ee617445701f2256111da4357696d567aa2a1629d8f68"
            "eed5b41558b1dd535b851a1f98bcdf462a6bc4b15eb80359cfe4e7d32555b6142835f9e06761aae3a032d48d1cce8bf792"
            "9e797d40d98c61a9d8cf4be5143c4dbbf294",
            b"",
            SeedNote(b"s" * 32, 5, b"r" * 32, b"w" * 32, b"t" * 16),
        ),
        (
            "f4d89c864e165ac25a0f8b753e0fddfa83db1b3815995dda98e697488d5891330f42af1bad1341e371744636933d160698"
            "1247e6fabd3de3cd228254d953d233d92993d2fb85e5654c9e8088c6cfc6a988e28d875330a8bbf62d0113efbb0c69ca3e"
            "d7b0dcef26d0ce89ccc92e873a7d4b78816b64500c6c4ec28e85a50bddb012801af0b903d927b4983d41fedd4189ce0c40"
            "05af6cd67efd9bdab52f405174d791e96ac29844a824b45a1e6b57298be293b7a19cd0a58c32fad99891622ec3563db3e8"
            "5b",
            b"one and two",
            SeedNote(b"s" * 32, 5, work=b"w" * 32, more=(b"m" * 32,)),
        ),
    ],
    ids=["bound to a request", "shared by two compensators"],
)
def test_what_sites_seal_now_opens_in_every_later_release(sealed: str, group: bytes, note: SeedNote) -> None:
    assert open_sealed(bytes(range(32)), bytes.fromhex(sealed), **CONTEXT, group=group) == note


def test_seeds_that_several_compensators_share_open_for_these_alone() -> None:
    note = SeedNote(b"s" * 32, 3, work=b"w" * 32, more=(b"m" * 32, b"n" * 32))
    sealed = seal(PUBLIC, note, **CONTEXT, group=b"one and two")
    assert len(sealed) == 165 + 2 * 32
    assert open_sealed(PRIVATE, sealed, **CONTEXT, group=b"one and two") == note
    for group in (b"", b"one and three"):
        refused(PRIVATE, sealed, group=group)


def test_a_tag_of_zeros_but_one_is_a_tag_and_of_zeros_alone_is_none() -> None:
    for tag, told in ((bytes(15) + b"t", bytes(15) + b"t"), (bytes(16), None)):
        note = replace(NOTE, tag=tag)
        assert open_sealed(PRIVATE, seal(PUBLIC, note, **CONTEXT), **CONTEXT).tag == told


def test_the_seal_is_as_long_whatever_a_policy_pins_and_far_below_a_kibibyte() -> None:
    lengths = {
        len(seal(PUBLIC, SeedNote(bytes(32), minimum, roster, bytes(32), tag), **CONTEXT))
        for minimum in (1, 2**32 - 1)
        for roster in (None, bytes(32))
        for tag in (None, b"t" * 16)
    }
    assert lengths == {165}


def test_the_same_note_is_never_sealed_to_the_same_bytes() -> None:
    assert seal(PUBLIC, NOTE, **CONTEXT) != seal(PUBLIC, NOTE, **CONTEXT)


def test_a_sealed_seed_does_not_open_with_another_key() -> None:
    refused(SealingKey.create().private_bytes, seal(PUBLIC, NOTE, **CONTEXT))


@pytest.mark.parametrize("part", UNBOUND)
def test_a_sealed_seed_does_not_open_in_another_context(part: str) -> None:
    refused(PRIVATE, seal(PUBLIC, NOTE, **CONTEXT), **{part: "other"})


def test_parts_of_the_context_cannot_be_shifted_into_each_other() -> None:
    sealed = seal(PUBLIC, NOTE, **(CONTEXT | {"project": "ab", "run": "c"}))
    refused(PRIVATE, sealed, project="a", run="bc")


def test_no_flipped_bit_goes_unnoticed() -> None:
    sealed = seal(PUBLIC, NOTE, **CONTEXT)
    for position in range(len(sealed)):
        flipped = bytearray(sealed)
        flipped[position] ^= 1
        refused(PRIVATE, bytes(flipped))


def test_no_truncated_or_longer_seal_opens() -> None:
    sealed = seal(PUBLIC, NOTE, **CONTEXT)
    for length in range(len(sealed)):
        refused(PRIVATE, sealed[:length])
    refused(PRIVATE, sealed + b"\0")


def test_a_key_of_low_order_is_refused_on_both_sides() -> None:
    with pytest.raises(HanseError, match="X25519 public key"):
        seal(bytes(32), NOTE, **CONTEXT)
    refused(PRIVATE, bytes(165))


def test_a_note_with_a_short_seed_a_minimum_of_zero_or_short_digests_is_refused() -> None:
    with pytest.raises(HanseError, match="seed of 32 bytes"):
        SeedNote(b"short", 3)
    for minimum in (0, 2**32):
        with pytest.raises(HanseError, match="minimum"):
            SeedNote(bytes(32), minimum)
    with pytest.raises(HanseError, match="roster"):
        SeedNote(bytes(32), 3, b"short")
    with pytest.raises(HanseError, match="work"):
        SeedNote(bytes(32), 3, work=b"short")
    with pytest.raises(HanseError, match="tag"):
        SeedNote(bytes(32), 3, tag=b"short")


def test_a_seed_is_never_shown() -> None:
    shown = repr(SeedNote(b"s" * 32, 3, more=(b"m" * 32,)))
    assert "ssss" not in shown
    assert "mmmm" not in shown


def test_a_statement_changes_with_everything_that_it_states() -> None:
    seed = SealedSeed.model_construct(
        participant="a", sealed=b"x" * 117, update=MaskShape(u64=1, u32=2), tally=3, request=None, signature=b""
    )
    changes = [
        {"participant": "b"},
        {"sealed": b"y" * 117},
        {"update": MaskShape(u64=2, u32=2)},
        {"update": MaskShape(u64=1, u32=3)},
        {"update": MaskShape(u64=0, u32=0)},
        {"update": MaskShape(u64=1, u32=2, u16=1)},
        {"update": MaskShape(u64=1, u32=2, u8=1)},
        {"update": MaskShape(u64=1, u32=2, u48=1)},
        {"update": MaskShape(u64=1, u32=2, u40=1)},
        {"update": MaskShape(u64=1, u32=2, u48=1, u40=1)},
        {"update": MaskShape(u64=1, u32=2, u48=1, u8=1)},
        {"update": None},
        {"tally": 4},
        {"request": "a" * 64},
        {"request": "b" * 64},
        {"seals": (b"one", b"two")},
        {"seals": (b"two", b"one")},
        {"seals": (b"one", b"two"), "request": "b" * 64},
        {"seals": (b"one", b"two"), "update": MaskShape(u64=1, u32=2, u48=1)},
    ]
    made = {statement("p", "r", "s", seed)}
    made |= {statement("p", "r", "s", seed.model_copy(update=change)) for change in changes}
    made |= {statement("q", "r", "s", seed), statement("p", "q", "s", seed), statement("p", "r", "q", seed)}
    assert len(made) == 23


def test_a_statement_does_not_change_with_the_signature_over_it() -> None:
    seed = SealedSeed.model_construct(participant="a", sealed=b"x", update=None, tally=3, request=None, signature=b"")
    assert statement("p", "r", "s", seed) == statement("p", "r", "s", seed.model_copy(update={"signature": b"z"}))


def test_a_roster_is_the_same_in_any_order() -> None:
    keys = [os.urandom(32) for _ in range(5)]
    assert roster_digest(keys) == roster_digest(reversed(keys)) == hashlib.sha256(b"".join(sorted(keys))).digest()
    assert roster_digest(keys[:4]) != roster_digest(keys)
    with pytest.raises(HanseError, match="Ed25519"):
        roster_digest([b"short"])


PLACE = b"".join(bytes([0, 0, 0, len(part)]) + part for part in (b"heart", b"abcdefghijkl", b"r1-train", b"clinic-a"))


@pytest.mark.parametrize(
    ("fields", "signed"),
    [
        (
            {"update": MaskShape(u64=1, u32=258), "tally": 3},
            b"hanse sealed seed 1" + PLACE + bytes.fromhex("01 0000000000000001 0000000000000102 00000003") + b"sealed",
        ),
        (
            {"update": MaskShape(u64=1, u32=258, u16=5), "tally": 3},
            b"hanse sealed seed narrow 1"
            + PLACE
            + bytes.fromhex("01 0000000000000001 0000000000000102 00000003 0000000000000005 0000000000000000")
            + b"sealed",
        ),
        (
            {"update": MaskShape(u64=1, u32=258, u8=5), "tally": 3},
            b"hanse sealed seed narrow 1"
            + PLACE
            + bytes.fromhex("01 0000000000000001 0000000000000102 00000003 0000000000000000 0000000000000005")
            + b"sealed",
        ),
        (
            {"update": MaskShape(u64=1, u32=258, u48=6, u40=7), "tally": 3},
            b"hanse sealed seed 48 40 1"
            + PLACE
            + bytes.fromhex("01 0000000000000001 0000000000000102 00000003 0000000000000006 0000000000000007")
            + b"sealed",
        ),
        (
            {"update": None, "tally": 7},
            b"hanse sealed seed 1" + PLACE + bytes.fromhex("00 0000000000000000 0000000000000000 00000007") + b"sealed",
        ),
        (
            {"update": None, "tally": 0, "parts": b"parts"},
            b"hanse sealed seed with noise 1" + hashlib.sha256(b"parts").digest() + PLACE + bytes(21) + b"sealed",
        ),
        (
            {"update": None, "tally": 0, "request": "aa" * 32},
            b"hanse sealed seed 2" + PLACE + b"\xaa" * 32 + bytes(21) + b"sealed",
        ),
        (
            {"update": None, "tally": 0, "parts": b"parts", "request": "aa" * 32},
            b"hanse sealed seed with noise 2"
            + hashlib.sha256(b"parts").digest()
            + PLACE
            + b"\xaa" * 32
            + bytes(21)
            + b"sealed",
        ),
        (
            {"update": None, "tally": 0, "seals": (b"one", b"two"), "request": "aa" * 32},
            b"hanse shared seeds 2"
            + hashlib.sha256(hashlib.sha256(b"one").digest() + hashlib.sha256(b"two").digest()).digest()
            + PLACE
            + b"\xaa" * 32
            + bytes(21)
            + b"sealed",
        ),
    ],
    ids=["update", "16 bits", "8 bits", "48 and 40 bits", "tally alone", "noise", "bound", "bound noise", "shared"],
)
def test_the_signed_statement_has_these_bytes(fields: dict[str, object], signed: bytes) -> None:
    given = {
        "participant": "clinic-a",
        "sealed": b"sealed",
        "signature": b"",
        "parts": None,
        "request": None,
        "seals": None,
    } | fields
    seed = SealedSeed.model_construct(**given)  # type: ignore[arg-type]
    assert statement("heart", "abcdefghijkl", "r1-train", seed) == signed
