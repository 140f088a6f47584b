"""The compensator as shuffler: its choice is in the sum of masks, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hanse_fabric.messages.masking import MaskRequest, MaskShape
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.noise.parts import Parts, coin_key, seal_parts
from hanse_privacy.noise.shuffled import PairedNoise, choose
from hanse_privacy.noise.source import NoiseSource
from masked_sites import RUN, SESSION, mask_request

SHAPE = MaskShape(u32=100)
SUM = {"project": "triage", "run": RUN, "session": SESSION}


def noise_of(number: int, count: int = 100) -> Parts:
    noise = PairedNoise(1000, 3, NoiseSource(bytes([number]) * 32))
    noise.draw(count)
    return noise.parts()


def sealed(site, number: int, **changes) -> bytes:
    return seal_parts(noise_of(number), site.seed, **{**SUM, "participant": site.name, **changes})


def noisy_request(triage, **others) -> MaskRequest:
    members = [
        site.sealed(triage.key.public_bytes, update=SHAPE, parts=others.get(site.name, sealed(site, number)))
        for number, site in enumerate(triage.sites)
    ]
    return mask_request("triage", members)


async def test_the_compensator_takes_the_chosen_noise_off_the_sum_of_masks(triage) -> None:
    request = noisy_request(triage)
    async with triage.running():
        answer = await triage.ask(request)
    assert answer.code == ""
    _, arrays = decode_tensors(await triage.small(request, answer.sum.update.digest))
    masks = np.zeros(100, "<u4")
    for site in triage.sites:
        MaskStream(site.seed, Purpose.UPDATE).add_to(masks, 0)
    coins = coin_key(triage.key.private_bytes, tuple(site.seed for site in triage.sites), **SUM)
    chosen = choose([noise_of(number) for number in range(len(triage.sites))], coins)
    assert np.abs(chosen).max() > 0
    assert np.array_equal((masks - arrays["u32"]).view("<i4"), chosen)


async def test_the_same_request_is_shuffled_by_the_same_coins(triage) -> None:
    request = noisy_request(triage)
    async with triage.running():
        first, second = await triage.ask(request), await triage.ask(request)
    assert first.sum.update.digest == second.sum.update.digest


@pytest.mark.parametrize("how", ["changed", "another's", "none"])
async def test_a_site_whose_noise_cannot_be_read_is_named_and_there_is_no_sum(triage, how: str) -> None:
    site = triage.sites[1]
    wrong = {
        "changed": b"\0" + sealed(site, 1)[1:],
        "another's": sealed(replace(site, name=triage.sites[0].name), 1),
        "none": None,
    }[how]
    async with triage.running():
        answer = await triage.ask(noisy_request(triage, **{site.name: wrong}))
    assert answer.sum is None
    assert answer.refused == (site.name,)
    assert answer.code == ("invalid-input" if how == "none" else "tampered")


async def test_noise_of_another_model_is_refused(triage) -> None:
    site = triage.sites[2]
    parts = seal_parts(noise_of(2, count=99), site.seed, **SUM, participant=site.name)
    async with triage.running():
        answer = await triage.ask(noisy_request(triage, **{site.name: parts}))
    assert answer.refused == (site.name,)
    assert "noise of 99 coordinates" in answer.reason
