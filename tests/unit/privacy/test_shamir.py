"""Shamir's sharing: any threshold of shares gives the secret, altered or foreign ones are refused."""

from __future__ import annotations

import random
import secrets
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise.shamir import PRIME, SHARE_BYTES, coefficients, combine, split


def test_the_field_is_a_prime_one_that_holds_every_secret() -> None:
    assert PRIME > 2**256
    for base in random.Random(1).sample(range(2, 10**9), 40):
        odd, twos = PRIME - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        value = pow(base, odd, PRIME)
        passed = value in (1, PRIME - 1) or any(pow(value, 2**power, PRIME) == PRIME - 1 for power in range(1, twos))
        assert passed


@settings(max_examples=40, deadline=None)
@given(data=st.data(), secret=st.binary(min_size=32, max_size=32), count=st.integers(1, 20))
def test_any_threshold_of_shares_gives_the_secret(data: st.DataObject, secret: bytes, count: int) -> None:
    threshold = data.draw(st.integers(1, count))
    shares = dict(enumerate(split(secret, threshold=threshold, count=count), start=1))
    chosen = data.draw(st.permutations(sorted(shares)))[: data.draw(st.integers(threshold, count))]
    assert combine({x: shares[x] for x in chosen}, threshold=threshold) == secret


def test_the_largest_secret_comes_back() -> None:
    secret = b"\xff" * 32
    shares = dict(enumerate(split(secret, threshold=3, count=5), start=1))
    assert combine(shares, threshold=3) == secret


def test_fewer_shares_than_the_threshold_are_refused() -> None:
    shares = dict(enumerate(split(secrets.token_bytes(32), threshold=3, count=5), start=1))
    with pytest.raises(HanseError) as refused:
        combine({1: shares[1], 2: shares[2]}, threshold=3)
    assert refused.value.code is ErrorCode.QUORUM


def test_one_share_less_than_the_threshold_fits_any_secret() -> None:
    """Perfect secrecy: for every other secret there is a last share with which the same shares give it."""
    secret, other = secrets.token_bytes(32), secrets.token_bytes(32)
    shares = dict(enumerate(split(secret, threshold=3, count=3), start=1))
    weights = coefficients([1, 2, 3])
    known = sum(weights[x] * int.from_bytes(shares[x], "big") for x in (1, 2))
    last = (int.from_bytes(other, "big") - known) * pow(weights[3], -1, PRIME) % PRIME
    forged = {**shares, 3: last.to_bytes(SHARE_BYTES, "big")}
    assert combine(forged, threshold=3) == other


def test_shares_that_do_not_belong_together_give_no_secret_or_another_one() -> None:
    secret = secrets.token_bytes(32)
    mine = dict(enumerate(split(secret, threshold=2, count=3), start=1))
    foreign = dict(enumerate(split(secrets.token_bytes(32), threshold=2, count=3), start=1))
    found = b""
    with suppress(HanseError):
        found = combine({1: mine[1], 2: foreign[2]}, threshold=2)
    assert found != secret


@pytest.mark.parametrize("share", [b"", b"\0" * 32, b"\0" * 34, PRIME.to_bytes(33, "big"), b"\xff" * 33])
def test_a_truncated_or_impossible_share_is_refused(share: bytes) -> None:
    with pytest.raises(HanseError) as refused:
        combine({1: share}, threshold=1)
    assert refused.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("abscissae", [[1, 1], [0, 1], [-1, 2]])
def test_shares_at_the_same_or_no_abscissa_are_refused(abscissae: list[int]) -> None:
    with pytest.raises(HanseError):
        coefficients(abscissae)


@pytest.mark.parametrize(("threshold", "count"), [(0, 3), (4, 3)])
def test_an_impossible_threshold_is_refused(threshold: int, count: int) -> None:
    with pytest.raises(HanseError) as refused:
        split(bytes(32), threshold=threshold, count=count)
    assert "threshold" in refused.value.message


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(HanseError):
        split(bytes(31), threshold=2, count=3)
