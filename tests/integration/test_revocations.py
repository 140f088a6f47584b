"""Revocations rest in what the servers keep: with few keys, several replicas, restarts, upgrades and lost disks."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from hanse_coordinator.authority import BusCredentials
from hanse_fabric.bus import claims
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import FOR_GOOD, TOKEN_S
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import Role
from hanse_operations.secrets.wanted import Wishes, wanted
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import free_ports
from servers import NatsServer

NEEDED = ("account.pub", "region-hub.pub", "region-hub-signer.seed", "signer.seed", "system.seed")


class Site:
    """A key with its token."""

    def __init__(self, authority: BusAuthority, name: str) -> None:
        self.name, self.key = name, KeyPair.create(KeyKind.USER)
        self._creds = credentials(authority.participant_jwt("p", name, self.key.public), self.key)

    async def connects(self, url: str) -> bool:
        try:
            await (await NatsBus.connect(url, f"p.{self.name}", creds=self._creds, timeout=60)).close()
        except HanseError as error:
            if error.code is not ErrorCode.UNAUTHENTICATED:
                raise
            return False
        return True


def few_keys(whole: BusAuthority, folder: Path) -> BusAuthority:
    """What the chart mounts for the coordinator: three keys and two public ones, read-only."""
    folder.mkdir()
    public = {"account.pub": whole.account, "region-hub.pub": whole.account_of("hub")}
    for name in NEEDED:
        (folder / name).write_text(public[name] if name in public else (whole.folder / name).read_text())
    folder.chmod(0o500)
    return BusAuthority(folder)


async def test_three_keys_in_a_read_only_folder_are_enough_to_enrol_and_revoke(
    mortal_nats: NatsServer, tmp_path: Path
) -> None:
    authority = few_keys(mortal_nats.authority, tmp_path / "keys")
    site, other = Site(authority, "north"), Site(authority, "south")
    assert await site.connects(mortal_nats.url)
    await authority.revoke(site.key.public, url=mortal_nats.url, timeout=60)
    assert not await site.connects(mortal_nats.url)
    assert await other.connects(mortal_nats.url)
    assert sorted(path.name for path in authority.folder.iterdir()) == sorted(NEEDED)


def test_a_key_that_is_missing_is_named_where_it_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HanseError, match=r"account\.seed") as refusal:
        _ = BusAuthority(tmp_path / "file" / "authority").account
    assert refusal.value.code is ErrorCode.INVALID_INPUT


async def test_replicas_that_revoke_at_the_same_time_undo_nothing(mortal_nats: NatsServer, tmp_path: Path) -> None:
    replicas = []
    for number in range(3):
        bus = await mortal_nats.connect(Role.COORDINATOR)
        replicas.append(
            (BusCredentials(few_keys(mortal_nats.authority, tmp_path / f"{number}"), bus, mortal_nats.url), bus)
        )
    sites = [Site(mortal_nats.authority, f"site{number}") for number in range(9)]
    await asyncio.gather(*(replicas[number % 3][0].revoke("hub", site.key.public) for number, site in enumerate(sites)))
    assert not any([await site.connects(mortal_nats.url) for site in sites])
    for _, bus in replicas:
        await bus.close()


async def test_a_server_that_lost_its_disk_gets_the_list_from_the_next_coordinator(
    mortal_nats: NatsServer,
) -> None:
    bus = await mortal_nats.connect(Role.COORDINATOR)
    replica = BusCredentials(mortal_nats.authority, bus, mortal_nats.url)
    site = Site(mortal_nats.authority, "north")
    await replica.revoke("hub", site.key.public)
    mortal_nats.kill()
    shutil.rmtree(mortal_nats.folder / "accounts")
    mortal_nats.start()
    assert await site.connects(mortal_nats.url)
    await replica.keep_settled()
    assert not await site.connects(mortal_nats.url)
    await bus.close()


async def test_a_site_that_was_let_in_again_with_the_same_key_can_be_revoked_again(
    mortal_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await mortal_nats.connect(Role.COORDINATOR)
    hub = BusCredentials(mortal_nats.authority, bus, mortal_nats.url)
    with monkeypatch.context() as earlier:
        earlier.setattr(hub, "_clock", SimpleNamespace(now=lambda: datetime.now(UTC) - timedelta(minutes=1)))
        site = Site(mortal_nats.authority, "north")
        await hub.revoke("hub", site.key.public)
    assert await site.connects(mortal_nats.url), "its token is newer"
    await hub.revoke("hub", site.key.public)
    assert not await site.connects(mortal_nats.url)
    await bus.close()


class Charted:
    """A server that is configured as in the chart, from the secrets of the keys job."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_ports(1)[0]
        self.url = f"nats://127.0.0.1:{self.port}"
        self.secrets: dict[str, dict[str, bytes]] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def upgrade(self) -> None:
        """The keys job, and a new pod."""
        self.kill()
        wishes = Wishes(accounts_folder=str(self.folder / "data" / "accounts"))
        self.secrets = wanted(self.secrets, wishes, datetime.now(UTC))
        write_durably(self.folder / "accounts.conf", self.secrets["nats-accounts"]["accounts.conf"].decode())
        (self.folder / "nats.conf").write_text(
            f"listen: 127.0.0.1:{self.port}\nserver_name: nats-0\nmax_control_line: 65536\n"
            f'jetstream {{ store_dir: "{self.folder}/data/jetstream" }}\ninclude ./accounts.conf\n'
        )
        program = nats_program(self.folder / "unused", BusAuthority(self.folder / "unused"), port=self.port)
        self.process = subprocess.Popen(
            [program.argv[0], "-c", str(self.folder / "nats.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while not program.answers():
            assert self.process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)

    def authority(self) -> BusAuthority:
        folder = self.folder / "authority"
        folder.mkdir(exist_ok=True)
        for name in NEEDED:
            write_durably(folder / name, self.secrets["authority"][name].decode())
        return BusAuthority(folder)


@pytest.fixture
def charted(tmp_path: Path) -> Charted:
    return Charted(tmp_path)


async def test_neither_a_restart_nor_the_keys_job_of_an_upgrade_undoes_a_revocation(
    charted: Charted, request: pytest.FixtureRequest
) -> None:
    end: Callable[[], None] = charted.kill
    request.addfinalizer(end)
    charted.upgrade()
    site = Site(charted.authority(), "north")
    assert await site.connects(charted.url)
    await charted.authority().revoke(site.key.public, url=charted.url, timeout=60)
    assert not await site.connects(charted.url)
    del charted.secrets["nats-accounts"]  # even where it must be made again
    charted.upgrade()
    assert not await site.connects(charted.url)
    assert await Site(charted.authority(), "south").connects(charted.url)


@pytest.mark.parametrize("later_s", [TOKEN_S + 540, TOKEN_S + 1200])
async def test_a_sites_revocation_stands_until_its_token_has_ended_by_a_clock_that_is_behind(
    mortal_nats: NatsServer, monkeypatch: pytest.MonkeyPatch, later_s: int
) -> None:
    """The server's clock stands still, so its token has not ended there. Control: much later the key is forgotten."""
    bus = await mortal_nats.connect(Role.COORDINATOR)
    hub, site = BusCredentials(mortal_nats.authority, bus, mortal_nats.url), Site(mortal_nats.authority, "north")
    await hub.revoke("hub", site.key.public)
    now = time.time()
    monkeypatch.setattr(claims, "time", SimpleNamespace(time=lambda: now + later_s))
    await hub._write_down(KeyPair.create(KeyKind.USER).public, FOR_GOOD, "hub")
    await hub.settle()
    assert await site.connects(mortal_nats.url) == (later_s > TOKEN_S + 600)
    await bus.close()


async def test_a_service_whose_key_is_revoked_after_all_former_tokens_stays_out(mortal_nats: NatsServer) -> None:
    """That all are void which were issued before a moment says nothing of those after it."""
    authority, key = mortal_nats.authority, KeyPair.create(KeyKind.USER)
    thief = authority._issuer.role_credentials(Role.MODEL_REGISTRY, key)
    await authority.end_tokens_of_before(int(time.time()) - 60, url=mortal_nats.url)
    await (await NatsBus.connect(mortal_nats.url, Role.MODEL_REGISTRY.value, creds=thief, timeout=60)).close()
    await authority.revoke(key.public, url=mortal_nats.url)
    for _ in range(2):
        with pytest.raises(HanseError) as refusal:
            await NatsBus.connect(mortal_nats.url, Role.MODEL_REGISTRY.value, creds=thief, timeout=60)
        assert refusal.value.code is ErrorCode.UNAUTHENTICATED
        await authority.settle({KeyPair.create(KeyKind.USER).public: int(time.time())}, url=mortal_nats.url)


async def test_a_key_that_was_revoked_in_two_regions_is_void_in_both(mortal_nats: NatsServer) -> None:
    bus = await mortal_nats.connect(Role.COORDINATOR)
    hub, key = BusCredentials(mortal_nats.authority, bus, mortal_nats.url), KeyPair.create(KeyKind.USER).public
    mortal_nats.authority.add_region("eu")
    for region in ("eu", "hub"):
        await hub.revoke(region, key)
    assert (await hub._listed())[key][1] is None
    await bus.close()
