"""Links for those who reach the object store by another address than the services do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hanse_fabric.connections import open_store
from hanse_fabric.errors import HanseError
from hanse_fabric.messages.uploads import UploadState, UploadStep
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.store.file_upload import FileUpload
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.store.uploads import go_on
from links import ref_of_file

MINUTE = timedelta(minutes=1)


async def test_links_are_signed_for_the_public_address_while_the_service_keeps_its_own(
    weed: Any, tmp_path: Path
) -> None:
    public = f"http://localhost:{weed.port}"
    store: S3Store = weed.store(public_url=public)
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(b"update" * 1000)

    ref, get = ref_of_file(sent), store.link_get("public/update", MINUTE)
    links: list[str] = [get]

    async def ask(step: UploadStep) -> UploadState:
        state = go_on(store, "public/update", ref, step, MINUTE)
        links.extend(part.url for part in state.parts)
        return state

    await FileUpload(HttpTransfer(), sent, ref).run(ask)
    HttpTransfer().fetch(get, back, limit=10_000)

    assert [urlsplit(link).netloc for link in links] == [f"localhost:{weed.port}"] * 2
    assert back.read_bytes() == sent.read_bytes() == store.get("public/update", limit=10_000)
    store.close()


def test_a_link_is_of_no_use_at_another_host_than_it_was_signed_for(weed: Any, tmp_path: Path) -> None:
    store: S3Store = weed.store(public_url="http://store.example.org")
    store.put("public/secret", b"model")
    link = store.link_get("public/secret", MINUTE).replace("store.example.org", f"127.0.0.1:{weed.port}")

    with pytest.raises(HanseError, match="SignatureDoesNotMatch"):
        HttpTransfer().fetch(link, tmp_path / "back", limit=10)
    store.close()


def test_the_public_address_of_the_store_is_taken_from_its_setting(weed: Any) -> None:
    def opened(**settings: str) -> Callable[..., str]:
        store = open_store(ServiceSettings(store_url=weed.url, store_access_key="k", store_secret_key="s", **settings))  # type: ignore[arg-type]
        store.close()
        return store.link_get

    assert opened(store_public_url="https://store.example.org")("a", MINUTE).startswith("https://store.example.org/")
    assert opened()("a", MINUTE).startswith(weed.url)
    with pytest.raises(HanseError, match="public store url"):
        opened(store_public_url="store.example.org")
