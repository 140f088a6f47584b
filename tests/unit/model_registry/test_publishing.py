"""Publishing: versions are numbered, and signed only where the store has the bytes that their digest names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hanse.verification import verify_model
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import (
    ModelVersion,
    ObjectRef,
)
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import RangeReader
from hanse_fabric.subjects import AUDIT
from hanse_fabric.telemetry import catalogue
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.refs import ref_of_bytes
from unit.model_registry.registry_hub import PROJECT, RUN, Hub, a_model


async def test_versions_are_numbered_from_one_and_keep_their_lineage(hub: Hub) -> None:
    first, second = await hub.put(1), await hub.put(2)
    assert (first.version, second.version) == (1, 2)
    assert second.lineage.participants == ("north", "south")
    assert hub.store.get(first.key, limit=100) == b"model abcdefghijkl 1"
    assert first.key == f"models/{PROJECT}/{first.digest}"


async def test_publishing_a_round_again_is_the_same_version_and_is_audited_once(hub: Hub) -> None:
    first = await hub.put(1)
    again = await hub.registry.publish(a_model(1))
    other_replica = await hub.replica().publish(a_model(1))
    assert first == again == other_replica
    assert [event.action for event in await hub.audit()] == ["model.record"]


async def test_replicas_that_publish_at_once_leave_no_gap_and_no_double(hub: Hub) -> None:
    replicas, recorded = [hub.replica() for _ in range(4)], catalogue.VERSIONS.value()
    made = await asyncio.gather(*(replicas[n % 4].publish(a_model(n // 2)) for n in range(24)))
    assert sorted({version.version for version in made}) == list(range(1, 13))
    assert catalogue.VERSIONS.value() == recorded + 12


async def test_a_model_in_the_store_must_be_there_with_its_size_and_in_its_projects_folder(hub: Hub) -> None:
    data = b"a large model"
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    request = a_model(1)
    with pytest.raises(HanseError) as absent:
        await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    assert absent.value.code is ErrorCode.NOT_FOUND
    hub.store.put(key, data + b"!")
    with pytest.raises(HanseError, match="14 bytes are in the store, 13 were announced"):
        await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    hub.store.put(key, data)
    version = await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    assert version.key == key
    for elsewhere, said in (("models/other/x", "a key under models/triage/"), ("models/triage/../other/x", "segments")):
        with pytest.raises(HanseError, match=said):
            await hub.registry.publish(a_model(2).model_copy(update={"model": ref_of_bytes(data, key=elsewhere)}))


class AlteringStore(DirectoryStore):
    """Alters one byte of what is read from it: `at` counts from the object's first."""

    at = 0

    def open_range(self, key: str, offset: int, length: int) -> RangeReader:
        reader, store, position = super().open_range(key, offset, length), self, offset

        class Altered:
            def read_into(self, buffer: memoryview) -> None:
                nonlocal position
                reader.read_into(buffer)
                if position <= store.at < position + len(buffer):
                    buffer[store.at - position] ^= 1
                position += len(buffer)

            def close(self) -> None:
                reader.close()

            def __enter__(self) -> Altered:
                return self

            def __exit__(self, *exception: object) -> None:
                self.close()

        return Altered()


@pytest.mark.parametrize("at", [0, LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 9])
async def test_a_model_is_not_signed_when_the_store_alters_one_byte_of_it(hub: Hub, tmp_path: Path, at: int) -> None:
    data = bytes(LEAF_BYTES) + b"the model's"[:10]
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    hub.store = AlteringStore(tmp_path / "store")
    hub.store.at = at
    hub.store.put(key, data)
    request = a_model(1).model_copy(update={"model": ref_of_bytes(data, key=key)})
    with pytest.raises(HanseError) as refusal:
        await hub.replica().publish(request)
    assert refusal.value.code is ErrorCode.TAMPERED
    assert f"{key}: leaf {at // LEAF_BYTES} " in refusal.value.message
    assert await hub.stages() == {}
    assert await hub.audit() == []
    assert (await hub.registry.publish(request)).version == 1


@pytest.mark.parametrize("inline", [False, True])
async def test_leaves_that_do_not_make_the_digest_are_not_signed(hub: Hub, inline: bool) -> None:
    data = b"the model"
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    hub.store.put(key, data)
    lying = ref_of_bytes(data, inline=inline, key=key).model_copy(update={"leaves": ("0" * 64,)})
    with pytest.raises(HanseError, match="its leaves do not make its digest") as refusal:
        await hub.registry.publish(a_model(1).model_copy(update={"model": lying}))
    assert refusal.value.code is ErrorCode.TAMPERED


async def test_an_inline_model_with_another_digest_or_no_bytes_is_refused(hub: Hub) -> None:
    request = a_model(1)
    forged = request.model.model_copy(update={"digest": "0" * 64})
    with pytest.raises(HanseError) as refusal:
        await hub.registry.publish(request.model_copy(update={"model": forged}))
    assert refusal.value.code is ErrorCode.TAMPERED
    nowhere = ObjectRef(digest="0" * 64, size=3)
    with pytest.raises(HanseError, match="bytes inline or a key"):
        await hub.registry.publish(request.model_copy(update={"model": nowhere}))


async def test_a_downloaded_file_is_verified_offline_and_promotion_keeps_the_signature(
    hub: Hub, tmp_path: Path
) -> None:
    version = await hub.put(1)
    path = tmp_path / "model.safetensors"
    path.write_bytes(hub.store.get(version.key, limit=100))
    before = catalogue.PROMOTIONS.value(stage="production")
    promoted = ModelVersion.decode((await hub.promote(1)).encode())
    assert catalogue.PROMOTIONS.value(stage="production") == before + 1
    verify_model(path, promoted, hub.key.public_bytes)
    with pytest.raises(HanseError, match="signature"):
        verify_model(path, promoted.model_copy(update={"metrics": {"accuracy": 0.99}}), hub.key.public_bytes)
    with pytest.raises(HanseError, match="another key"):
        verify_model(path, promoted, SigningKey.create().public_bytes)
    path.write_bytes(b"model abcdefghijkl 2")
    with pytest.raises(HanseError, match="digest"):
        verify_model(path, promoted, hub.key.public_bytes)


async def test_a_version_that_is_published_again_is_audited_again_only_while_the_bus_drops_the_second(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within that time the first audit may have been lost with the replica that should have sent it."""
    told, publish = list[str | None](), hub.registry._bus.publish

    async def noted(subject: str, data: bytes, **more: Any) -> int:
        if subject == AUDIT.of(project=PROJECT):
            told.append(more.get("message_id"))
        return await publish(subject, data, **more)

    monkeypatch.setattr(hub.registry._bus, "publish", noted)
    await hub.registry.publish(a_model(1))
    hub.clock.advance(99)
    await hub.registry.publish(a_model(1))
    hub.clock.advance(1)
    await hub.registry.publish(a_model(1))
    assert len(told) == 2
    assert len(set(told)) == 1
