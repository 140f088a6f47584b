"""What a study has made is signed as the registry read it, once; no other file is signed in its place."""

from __future__ import annotations

import asyncio

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages import StudyOutput
from hanse_fabric.tensors.refs import ref_of_bytes
from unit.model_registry.registry_hub import PROJECT, RUN, Hub

KEY = f"models/{PROJECT}/{RUN}/results"


def told(content: bytes, key: str = KEY) -> StudyOutput:
    ref = ref_of_bytes(content)
    return StudyOutput(
        project=PROJECT, run=RUN, name="results", digest=ref.digest, size=ref.size, leaves=ref.leaves, key=key,
        cohorts=("east", "north"),
    )  # fmt: skip


async def test_an_output_is_signed_once_by_whichever_replica_is_asked(hub: Hub) -> None:
    hub.store.put(KEY, b"results")
    first, second = await asyncio.gather(
        *(each.outputs.sign(told(b"results"), actor="key:o") for each in (hub.registry, hub.replica()))
    )
    assert first == second
    VerifyKey(hub.key.public_bytes).verify(first.signature, first.statement(), what="results")
    assert first.model_dump(exclude={"recorded_at", "public_key", "signature"}) == told(b"results").model_dump(
        exclude={"recorded_at", "public_key", "signature"}
    )
    assert [event.action for event in await hub.audit()] == ["output.sign"]

    hub.key = SigningKey.create()
    again = await hub.replica().outputs.sign(told(b"results"), actor="key:o")
    assert again.public_key == hub.key.public_bytes, "a registry with another key signs the same anew"


async def test_another_file_is_not_signed_in_its_place(hub: Hub) -> None:
    hub.store.put(KEY, b"results")
    signed = await hub.registry.outputs.sign(told(b"results"), actor="key:o")
    hub.store.put(KEY, b"altered")
    with pytest.raises(HanseError, match=f"{signed.digest} was signed as it") as caught:
        await hub.registry.outputs.sign(told(b"altered"), actor="key:o")
    assert caught.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (KEY, ErrorCode.TAMPERED),
        (f"models/{PROJECT}/{RUN}/none", ErrorCode.NOT_FOUND),
        (f"models/{PROJECT}/{'z' * 12}/results", ErrorCode.INVALID_INPUT),
        (f"updates/{PROJECT}/{RUN}/results", ErrorCode.INVALID_INPUT),
    ],
    ids=["other-bytes", "no-bytes", "another-run", "an-update"],
)
async def test_what_the_registry_did_not_read_itself_is_not_signed(hub: Hub, key: str, code: ErrorCode) -> None:
    hub.store.put(KEY, b"altered")
    with pytest.raises(HanseError) as caught:
        await hub.registry.outputs.sign(told(b"results", key), actor="key:o")
    assert caught.value.code is code
    assert await hub.audit() == []
