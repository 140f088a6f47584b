"""Keystreams: known answers, any range alone, and never the same mask twice."""

import hashlib
import hmac
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_privacy.masks.stream import BLOCK_BYTES, MaskStream, Purpose

SEED = bytes(range(32))


def hkdf(seed: bytes, info: bytes) -> bytes:
    """RFC 5869 by hand: extract with a salt of zeros, expand by one block."""
    extracted = hmac.new(bytes(32), seed, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def keystream(key: bytes, first_byte: int, nbytes: int) -> bytes:
    """Counter mode by hand: AES of each counter block alone."""
    first, last = first_byte // 16, (first_byte + nbytes - 1) // 16
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  (counter mode, made by hand)
    made = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(first, last + 1))
    return made[first_byte % 16 :][:nbytes]


def test_the_counter_mode_gives_the_answers_of_nist_sp_800_38a_f_5_5() -> None:
    stream = MaskStream(SEED, Purpose.UPDATE)
    stream._key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int.from_bytes(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"), "big")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    made = stream.block(16 * counter, 32)
    assert bytes(a ^ b for a, b in zip(made, plain, strict=True)) == cipher


@pytest.mark.parametrize("purpose", Purpose)
def test_a_mask_is_aes_in_counter_mode_under_the_hkdf_of_its_seed(purpose: Purpose) -> None:
    expected = keystream(hkdf(SEED, purpose.encode()), 0, 1000)
    assert MaskStream(SEED, purpose).block(0, 1000) == expected


def test_the_masks_of_a_release_are_those_of_the_next() -> None:
    made = MaskStream(SEED, Purpose.UPDATE).block(0, 1 << 20)
    assert hashlib.sha256(made).hexdigest() == "9e9cd0836abb548a4d87b04b5059e72bce0ce60ad069188fc12bc0147c87b35a"


@settings(max_examples=50, deadline=None)
@given(first=st.integers(0, 2 * BLOCK_BYTES), nbytes=st.integers(0, 2 * BLOCK_BYTES))
def test_any_range_alone_is_the_same_range_of_the_whole(first: int, nbytes: int) -> None:
    stream = MaskStream(SEED, Purpose.UPDATE)
    assert stream.block(first, nbytes) == WHOLE[first : first + nbytes]


WHOLE = MaskStream(SEED, Purpose.UPDATE).block(0, 4 * BLOCK_BYTES)


def test_a_range_of_a_mask_beyond_four_gibibytes_is_made_without_what_lies_before() -> None:
    first = (5 << 32) + 7
    assert MaskStream(SEED, Purpose.UPDATE).block(first, 100) == keystream(hkdf(SEED, b"hanse update mask"), first, 100)


@settings(max_examples=30, deadline=None)
@given(dtype=st.sampled_from(["<u4", "<u8"]), count=st.integers(0, 70_000), first=st.integers(0, 1000))
def test_adding_and_subtracting_a_mask_leaves_what_was_there(dtype: str, count: int, first: int) -> None:
    plain = np.arange(count, dtype=dtype)
    array = plain.copy()
    stream = MaskStream(SEED, Purpose.TALLY)
    first *= array.itemsize
    stream.add_to(array, first)
    assert np.array_equal(array, plain + np.frombuffer(stream.block(first, array.nbytes), dtype))
    stream.subtract_from(array, first)
    assert np.array_equal(array, plain)


def test_threads_share_a_stream() -> None:
    stream = MaskStream(SEED, Purpose.UPDATE)
    with ThreadPoolExecutor(4) as pool:
        made = pool.map(lambda start: stream.block(start, 50_000), range(0, 400_000, 50_000))
    assert b"".join(made) == WHOLE[:400_000]


def test_no_mask_is_the_mask_of_another_purpose_site_or_session() -> None:
    seeds = [os.urandom(32) for _ in range(20)]
    masks = {bytes(MaskStream(seed, purpose).block(0, 64)) for seed in seeds for purpose in Purpose}
    assert len(masks) == 20 * len(Purpose) == 100


@pytest.mark.parametrize("length", [0, 4, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(HanseError, match="seed of 32 bytes"):
        MaskStream(bytes(length), Purpose.UPDATE)


def test_floats_are_never_masked() -> None:
    with pytest.raises(HanseError, match="uint8 to uint64"):
        MaskStream(SEED, Purpose.UPDATE).add_to(np.zeros(3, dtype=np.float32), 0)


def test_a_masked_array_is_uniform_whatever_it_hides() -> None:
    zeros = np.zeros(1 << 18, dtype=np.uint32)
    MaskStream(SEED, Purpose.UPDATE).add_to(zeros, 0)
    counts = np.bincount(zeros.view(np.uint8), minlength=256)
    expected = zeros.nbytes / 256
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    # 255 degrees of freedom: mean 255, standard deviation 22.6. The seed is fixed, and so is the outcome.
    assert 150 < chi_squared < 370
