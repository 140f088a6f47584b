"""Shuffled noise as the platform has it: exact, sealed, and as much as it should be."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.messages.masking import MaskRequest, MaskShape, SealedSeed
from hanse_privacy.masks.seal import statement
from hanse_privacy.noise.parts import PAIRS, Parts, coin_key, open_parts, pairs_for, seal_parts, width_for
from hanse_privacy.noise.shuffled import PairedNoise, choose, subtract_choice
from hanse_privacy.noise.source import NoiseSource
from known_noise import source

CONTEXT = {"project": "p", "run": "r", "session": "s"}
SEED = bytes(range(32))


def drawn(steps: int, pairs: int, count: int, seed: int = 0) -> tuple[np.ndarray, PairedNoise]:
    noise = PairedNoise(steps, pairs, source(seed))
    half = count // 2 or 1
    blocks = [noise.draw(half)] + ([noise.draw(count - half)] if count > half else [])
    return np.concatenate(blocks), noise


@pytest.mark.parametrize("pairs", [1, 4])
def test_a_sites_noise_is_laplace_whatever_the_coins_choose(pairs: int) -> None:
    added, noise = drawn(1 << 16, pairs, 10_000, seed=pairs)
    for key in (bytes(32), SEED):
        total = (added + choose([noise.parts()], key)) / (1 << 16)
        assert stats.kstest(total, "laplace").pvalue > 0.01


@pytest.mark.parametrize(
    ("steps", "pairs", "count"), [(1, 1, 1), (1, 5, 40), (127, 3, 2), (2**17, 2, 13), (2**40, 4, 39), (2**40, 4, 1)]
)
def test_the_coins_choose_one_part_of_each_pair(steps: int, pairs: int, count: int) -> None:
    _, noise = drawn(steps, pairs, count)
    parts = noise.parts()
    differences = np.concatenate(noise._differences, axis=1)
    coins = NoiseSource(SEED).bits(pairs * count).reshape(pairs, count)
    assert np.array_equal(choose([parts], SEED), (differences * coins).sum(axis=0))
    assert len(parts.values) == pairs * count * width_for(steps)  # tells nothing of what it holds


@pytest.mark.parametrize("wide", [False, True])
def test_the_choice_is_folded_into_the_sum_of_masks(wide: bool) -> None:
    members = [drawn(1000, 2, 7, seed=number)[1].parts() for number in range(3)]
    shape = MaskShape(u64=7) if wide else MaskShape(u32=7)
    masks = source().words(7).astype("<u8" if wide else "<u4")
    file = bytearray(b"header" + masks.tobytes())
    subtract_choice(file, shape, members, SEED)
    left = np.frombuffer(file, dtype=masks.dtype, offset=6)
    assert np.array_equal((masks - left).view("<i8" if wide else "<i4"), choose(members, SEED))
    assert bytes(file[:6]) == b"header"


@pytest.mark.parametrize("shape", [MaskShape(u64=7, u32=7), MaskShape(u32=8), MaskShape()])
def test_noise_of_another_shape_than_the_masks_is_refused(shape: MaskShape) -> None:
    with pytest.raises(HanseError, match="of all elements"):
        subtract_choice(bytearray(100), shape, [drawn(1000, 2, 7)[1].parts()], SEED)


def test_members_of_different_models_are_refused() -> None:
    with pytest.raises(HanseError, match="as many coordinates"):
        choose([drawn(10, 1, 3)[1].parts(), drawn(10, 1, 4)[1].parts()], SEED)


def test_parts_open_for_their_sum_and_seed_alone() -> None:
    parts = drawn(1000, 2, 7)[1].parts()
    sealed = seal_parts(parts, SEED, **CONTEXT, participant="a")
    assert open_parts(sealed, SEED, **CONTEXT, participant="a") == parts
    assert parts.values not in sealed
    assert "values" not in repr(parts)
    for change in (
        {"sealed": sealed[:-1]}, {"sealed": b""}, {"seed": SEED[::-1]}, {"participant": "b"}, {"session": "t"},
        {"run": "q"}, {"project": "o"},
    ):  # fmt: skip
        arguments = {"sealed": sealed, "seed": SEED, **CONTEXT, "participant": "a"} | change
        with pytest.raises(HanseError, match="does not open") as caught:
            open_parts(**arguments)  # type: ignore[arg-type]
        assert caught.value.code is ErrorCode.TAMPERED


def test_coins_are_the_same_for_the_same_set_and_others_for_any_other() -> None:
    def key(private: bytes = b"k" * 32, seeds: tuple[bytes, ...] = (SEED,), **changes: str) -> bytes:
        return coin_key(private, seeds, **{**CONTEXT, **changes})

    assert key() == key()
    others = {key(b"l" * 32), key(seeds=(SEED, SEED)), key(seeds=(SEED[::-1],)), key(session="t"), key(run="q")}
    assert len(others | {key()}) == 6


@pytest.mark.parametrize(
    "bad",
    [{"pairs": 0}, {"pairs": 3}, {"width": 9}, {"count": 0}, {"values": b"short"}],
)
def test_noise_parts_of_a_wrong_form_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(HanseError, match="noise parts"):
        replace(Parts(2, 3, 1, bytes(6)), **bad)  # type: ignore[arg-type]


def test_models_beyond_what_travels_in_one_message_are_refused() -> None:
    steps = 1 << 20
    assert pairs_for(10, 610, steps) == PAIRS
    assert pairs_for(3, 610, steps) == 2
    assert pairs_for(10, 10_000, steps) == 1
    with pytest.raises(HanseError, match="at most 17148 can be shuffled") as caught:
        pairs_for(10, 17_149, steps)
    assert caught.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("active", [3, 10, 100, 1000])
def test_the_most_noise_that_is_allowed_fits_in_one_message(active: int) -> None:
    steps = 1 << 20
    most = next(count for count in range(50_000, 0, -1) if _fits(active, count, steps))
    sealed = base64.b64encode(bytes(pairs_for(active, most, steps) * most * width_for(steps) + 23)).decode()
    member = {"sealed": base64.b64encode(bytes(117)).decode(), "signature": base64.b64encode(bytes(64)).decode()}
    shape = {"u64": 0, "u32": most}
    members = [
        {"participant": f"{index:0>63}", "update": shape, "tally": 9, "parts": sealed} | member
        for index in range(active)
    ]
    request = MaskRequest.model_validate({"project": "p" * 63, "run": "r" * 12, "session": "s", "members": members})
    assert len(request.encode()) < MAX_MESSAGE_BYTES


def _fits(active: int, count: int, steps: int) -> bool:
    try:
        return pairs_for(active, count, steps) > 0
    except HanseError:
        return False


def test_the_signature_covers_the_noise() -> None:
    seed = SealedSeed.model_construct(
        participant="a", sealed=b"s" * 117, update=None, tally=1, parts=None, signature=b""
    )
    said = {statement("p", "r", "s", seed.model_copy(update={"parts": parts})) for parts in (None, b"", b"x", b"y")}
    assert len(said) == 4
