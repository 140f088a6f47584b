"""What a round's bytes take by the S3 client alone, through the same store and by as many clients."""

from __future__ import annotations

import json
import secrets
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from hanse.embedded.deployment import Deployment
from hanse_fabric.store.s3 import S3Store
from hanse_operations.servers.seaweedfs import BUCKET, store_keys

_FOLDER = "bench"


def round_through_store(deployment: Deployment, folder: Path, *, megabytes: int, clients: int, repeats: int) -> float:
    """Seconds, the median of `repeats` after a first one: every client gets the model and puts an update, then one
    reads the model and all updates and puts the next model.

    Args:
        folder: for the clients' files.
        megabytes: of the model, and of each update.
    """
    hub = deployment.folder / "hub"
    key, port = store_keys(hub / "store")["admin"], json.loads((hub / "ports.json").read_text())["store"]
    store = S3Store(f"http://127.0.0.1:{port}", key.access_key, key.secret_key, BUCKET)
    folder.mkdir(parents=True, exist_ok=True)
    updates = [folder / f"update-{client}" for client in range(clients)]
    for path in updates:
        path.write_bytes(secrets.token_bytes(megabytes * 1_000_000))
    store.put_file(f"{_FOLDER}/model-0", updates[0])
    try:
        times = [_once(store, updates, number) for number in range(repeats + 1)]
        return statistics.median(times[1:])
    finally:
        for name in list(store.keys(f"{_FOLDER}/")):
            store.delete(name)
        store.close()
        for path in folder.iterdir():
            path.unlink()


def _once(store: S3Store, updates: list[Path], number: int) -> float:
    size = updates[0].stat().st_size
    model, names = f"{_FOLDER}/model-{number}", [f"{_FOLDER}/{path.name}-{number}" for path in updates]
    began = time.perf_counter()
    with ThreadPoolExecutor(len(updates)) as pool:
        list(pool.map(partial(_client, store, model), updates, names))
        list(pool.map(partial(_read, store, size), [model, *names]))
    store.put_file(f"{_FOLDER}/model-{number + 1}", updates[0])
    return time.perf_counter() - began


def _client(store: S3Store, model: str, path: Path, name: str) -> None:
    store.get_file(model, path.with_suffix(".model"), limit=path.stat().st_size)
    store.put_file(name, path)


def _read(store: S3Store, size: int, name: str) -> None:
    store.read_into(name, 0, memoryview(bytearray(size)))
