"""Whoever has a service's keys to the object store, or the store itself: what can be read there, and altered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, model_ref
from adversary.stage import FEATURES
from hanse_compensator.upload import Upload
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome
from hanse_fabric.store.http import HttpClient, Refused
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.store.transfer import Came
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_site import cache

MODEL, ALTERED = np.linspace(0.5, -0.5, FEATURES), np.linspace(3.0, -2.0, FEATURES)
ALONE = {"sites": 1, "masking": {"required": False}, "minimum_participants": 1}


@contextmanager
def _store(weed, role: str) -> Iterator[S3Store]:
    store = weed.store(role, patience=5.0)
    try:
        yield store
    finally:
        store.close()


def _forbidden(call: Callable[[], object]) -> None:
    with pytest.raises(HanseError) as caught:
        call()
    assert caught.value.code is ErrorCode.FORBIDDEN, caught.value


@pytest.fixture(scope="module")
def objects(weed) -> dict[str, str]:
    """One object of each kind, put there by an administrator."""
    found = {kind: f"{kind}/access/r/x" for kind in ("models", "updates", "masks")}
    with _store(weed, "admin") as admin:
        for key in found.values():
            admin.put(key, b"secret")
    return found


def copied(store: S3Store, source: str) -> None:
    """Have the store itself copy what one may not read to where one may."""
    to, headers = f"probe/{source.replace('/', '-')}", {"x-amz-copy-source": f"{store._bucket}/{source}"}
    url = store._part_signer.presign(
        "PUT", f"/{store._bucket}/{to}", at=datetime.now(UTC), expires=timedelta(minutes=1), headers=headers, query={}
    )
    try:
        HttpClient().request("PUT", url, lambda answer: answer.drain_conn(), headers=headers)
    except Refused as refused:
        raise refused.explain(source) from None


READERS = {
    "models": {"coordinator", "aggregator", "model-registry"},
    "updates": {"aggregator"},
    "masks": {"aggregator"},
}
WRITERS = {
    "models": {"coordinator", "aggregator", "model-registry"},
    "updates": {"coordinator"},
    "masks": {"compensator", "coordinator"},
}
"""The coordinator writes to sign the sites' links, and to remove what a run leaves; for that it sees names, too."""


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("role", ["coordinator", "aggregator", "compensator", "model-registry"])
@pytest.mark.control_inside
def test_the_store_lets_each_service_read_and_write_its_own_only(weed, objects, role: str, kind: str) -> None:
    key = objects[kind]
    with _store(weed, role) as store:
        if role in READERS[kind]:
            assert store.get(key, limit=10) == b"secret"
        else:
            for read in (
                lambda: store.get(key, limit=10),
                lambda: store.size(key),
                lambda: store.open_range(key, 0, 3).read_into(memoryview(bytearray(3))),
                lambda: copied(store, key),
                lambda: copied(store, f"{key}/"),
            ):
                _forbidden(read)
        if kind != "models" and role not in READERS[kind] | {"coordinator"}:
            _forbidden(lambda: list(store.keys(f"{kind}/")))
        new = f"{kind}/access/{role}"
        if role in WRITERS[kind]:
            store.put(new, b"mine")
        else:
            _forbidden(lambda: store.put(new, b"mine"))
            _forbidden(lambda: store.open_upload(new))
            _forbidden(lambda: store.delete(key))


@pytest.mark.no_attack("an honest upload, with no other right than to write")
def test_a_compensator_uploads_in_parts_with_the_right_to_write_alone(weed) -> None:
    data = bytes(range(256)) * (LEAF_BYTES // 256) + b"and a bit"
    with _store(weed, "compensator") as store:
        assert store.ready()
        with Upload(store, "masks/access/parts", threading.Event()) as upload:
            upload.write(data)
            ref = upload.finish()
        stop = threading.Event()
        stop.set()
        with Upload(store, "masks/access/broken", stop) as upload, pytest.raises(HanseError) as caught:
            upload.write(data)
    assert caught.value.code is ErrorCode.CANCELLED
    with _store(weed, "aggregator") as store:
        assert store.get("masks/access/parts", limit=ref.size) == data
    with _store(weed, "admin") as store:
        assert not store.exists("masks/access/broken")
        assert store.abort_uploads("masks/access/") == 0


async def trained_on_what_the_store_gives(hub: LyingHub) -> tuple[Outcome, str, np.ndarray | None]:
    """A task names a model by its digest, and the store holds another under its key: (outcome, code, the update)."""
    store, key = hub.stage.store, f"models/{hub.stage.project}/1"
    named = model_ref(MODEL).model_copy(update={"inline": None, "key": key})
    altered = model_ref(ALTERED).inline
    assert altered is not None
    await asyncio.to_thread(store.put, key, altered)
    task = hub.task("site-0", mode=None, deadline=datetime.now(UTC) + timedelta(seconds=30))
    # A copy takes the reference as it is; validation would take its bytes for base64.
    answer = (await hub.ask(task.model_copy(update={"model": named})))["site-0"]
    return answer.outcome, answer.code, await hub.update(answer) if answer.outcome is Outcome.DONE else None


async def test_a_model_that_the_store_has_altered_is_not_trained_on(attacked: Attacked) -> None:
    async with attacked(**ALONE) as hub:
        assert await trained_on_what_the_store_gives(hub) == (Outcome.REFUSED, "tampered", None)


@pytest.mark.control("test_a_model_that_the_store_has_altered_is_not_trained_on")
async def test_control_where_digests_are_not_checked_the_store_chooses_the_model(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "holds", lambda path, _: path.exists())
    monkeypatch.setattr(Came, "digested", None)  # what is hashed while it comes
    async with attacked(**ALONE) as hub:
        _, _, update = await trained_on_what_the_store_gives(hub)
        assert np.array_equal(update, hub.stage.sites["site-0"].update(ALTERED))
