"""The secrets of a deployment, as a function of what exists."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from hanse_fabric.bus.issuing import issued_at
from hanse_fabric.bus.jwt import claims_of, credentials, read_credentials, user_jwt
from hanse_fabric.bus.nkeys import KeyPair
from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import Kind, parse
from hanse_fabric.subjects import Role
from hanse_operations.secrets.certificates import CA_LIFE, SERVER_LIFE
from hanse_operations.secrets.wanted import BUS_ROLES, SINCE, Wishes, names, wanted
from hanse_operations.servers.seaweedfs import IDENTITIES

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ALL = Wishes(hosts=["hub-nats", "*.hub-nats.ns.svc", "10.0.0.7"], tls=True, store_server=True, compensator=True)


def test_all_secrets_are_made_once_and_kept() -> None:
    made = wanted({}, ALL, NOW)
    assert list(made) == names(ALL)
    assert wanted(made, ALL, NOW + timedelta(days=1)) == made
    assert parse(made["operator-key"]["api_key"].decode(), Kind.API_KEY)
    identities = {one["name"]: one for one in json.loads(made["store-server"]["s3.json"])["identities"]}
    assert set(identities) == set(IDENTITIES)
    for name, one in identities.items():
        held = made[f"store-{name}"]
        assert one["credentials"] == [
            {"accessKey": held["access_key"].decode(), "secretKey": held["secret_key"].decode()}
        ]


def test_only_secrets_that_the_values_ask_for_are_made() -> None:
    made = wanted({}, Wishes(), NOW)
    assert list(made) == names(Wishes())
    assert not {"bus-tls", "store-server", "compensator-key"} & set(made)
    assert "ca.key" not in made["authority"]


def test_a_region_gets_an_account_a_signing_key_and_a_leaf_key_of_its_own_and_keeps_them() -> None:
    before = wanted({}, Wishes(), NOW)
    made = wanted(before, Wishes(regions=["eu", "us"]), NOW)
    assert {name: made[name] for name in made if name not in ("authority", "nats-accounts")} == {
        name: before[name] for name in before if name not in ("authority", "nats-accounts")
    }
    own = {"region-{}.seed", "region-{}.pub", "region-{}-signer.seed", "user-leaf-{}.seed"}
    added = {name.format(region) for name in own for region in ("eu", "us")}
    assert made["authority"].keys() - before["authority"].keys() == added
    keys = [KeyPair.from_seed(made["authority"][name].decode()).public for name in added if name.endswith(".seed")]
    assert len(set(keys)) == len(keys)
    for region in ("eu", "us"):
        public = made["authority"][f"region-{region}.pub"].decode()
        assert public in made["nats-accounts"]["accounts.conf"].decode()
    assert wanted(made, Wishes(regions=["us"]), NOW) == made, "what the values no longer name stays"


@pytest.mark.parametrize("name", ["", "Eu", "eu.west", "*", "eu-signer"])
def test_what_is_no_name_of_a_region_is_refused(name: str) -> None:
    with pytest.raises(HanseError, match=r"^region: ") as refusal:
        wanted({}, Wishes(regions=[name]), NOW)
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_a_missing_secret_is_made_and_the_others_stay_the_same() -> None:
    made = wanted({}, ALL, NOW)
    have = {name: data for name, data in made.items() if name not in ("bus-aggregator", "store-coordinator")}
    again = wanted(have, ALL, NOW)
    changed = {name for name in made if again[name] != made[name]}
    # The aggregator's user keeps its key, so its credentials stay the same; the store's identity is a new one.
    assert changed <= {"bus-aggregator", "store-coordinator", "store-server"}
    assert {"store-coordinator", "store-server"} <= changed
    assert wanted(again, ALL, NOW) == again


def test_every_service_gets_credentials_with_its_permissions_from_the_account() -> None:
    made = wanted({}, Wishes(), NOW)
    account = made["nats-accounts"]["account"].decode()
    for role in BUS_ROLES:
        token, key = read_credentials(made[f"bus-{role.value}"]["bus.creds"].decode())
        claims = claims_of(token)
        assert (claims["iss"], claims["sub"]) == (account, key.public)
        assert claims["nats"]["pub"]["allow"] == permissions_for(role)["publish"]
    assert set(Role) - set(BUS_ROLES) == {Role.PARTICIPANT}


def test_credentials_are_made_anew_when_the_permissions_of_their_role_changed() -> None:
    made = wanted({}, Wishes(), NOW)
    authority = made["authority"]
    user = KeyPair.from_seed(authority["user-aggregator.seed"].decode())
    account = KeyPair.from_seed(authority["account.seed"].decode())
    old = credentials(user_jwt(account, user.public, "aggregator", {"publish": ["old"], "subscribe": []}), user)
    again = wanted({**made, "bus-aggregator": {"bus.creds": old.encode()}}, Wishes(), NOW)
    token, key = read_credentials(again["bus-aggregator"]["bus.creds"].decode())
    assert claims_of(token)["nats"]["pub"]["allow"] == permissions_for(Role.AGGREGATOR)["publish"]
    assert key.public == user.public
    assert {name for name in made if again[name] != made[name]} <= {"bus-aggregator"}


def test_all_credentials_are_made_anew_by_the_same_keys_where_that_is_asked_for_and_the_moment_is_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = wanted({}, Wishes(), NOW)
    at = int(NOW.timestamp()) + 10 * 366 * 86_400
    monkeypatch.setattr("hanse_fabric.bus.jwt.time.time", lambda: at)
    assert wanted(made, Wishes(), NOW) == made
    again = wanted(made, Wishes(renew_credentials=True), NOW)
    assert again["authority"] == made["authority"] | {SINCE: b"%d" % NOW.timestamp()}
    for role in BUS_ROLES:
        before, after = (read_credentials(each[f"bus-{role.value}"]["bus.creds"].decode()) for each in (made, again))
        assert issued_at(after[0]) == at > issued_at(before[0])
        assert after[1].public == before[1].public
    assert wanted(again, Wishes(), NOW) == again


def test_certificates_are_for_the_hosts_and_by_the_authority() -> None:
    made = wanted({}, ALL, NOW)
    ca = x509.load_pem_x509_certificate(made["bus-tls"]["ca.crt"])
    server = x509.load_pem_x509_certificate(made["bus-tls"]["tls.crt"])
    server.verify_directly_issued_by(ca)
    found = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["hub-nats", "*.hub-nats.ns.svc"]
    assert [str(one) for one in found.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_by_the_same_authority() -> None:
    made = wanted({}, ALL, NOW)
    assert wanted(made, ALL, NOW + SERVER_LIFE * 0.66)["bus-tls"] == made["bus-tls"]
    later = wanted(made, ALL, NOW + SERVER_LIFE * 0.67)
    assert later["bus-tls"]["tls.crt"] != made["bus-tls"]["tls.crt"]
    assert later["bus-tls"]["ca.crt"] == made["bus-tls"]["ca.crt"]
    assert {name for name in made if later[name] != made[name]} == {"bus-tls"}
    at_last = wanted(made, ALL, NOW + CA_LIFE * 0.67)
    assert at_last["bus-tls"]["ca.crt"] != made["bus-tls"]["ca.crt"]


@pytest.mark.parametrize("broken", [{"tls.crt": b"no certificate"}, {"tls.key": b"no key"}, {"tls.crt": b""}])
def test_a_certificate_that_cannot_be_used_is_made_anew(broken: dict[str, bytes]) -> None:
    made = wanted({}, ALL, NOW)
    again = wanted({**made, "bus-tls": made["bus-tls"] | broken}, ALL, NOW)
    x509.load_pem_x509_certificate(again["bus-tls"]["tls.crt"])
    assert again["bus-tls"]["ca.crt"] == made["bus-tls"]["ca.crt"]


def test_a_certificate_is_made_anew_when_its_hosts_change() -> None:
    made = wanted({}, ALL, NOW)
    again = wanted(made, Wishes(hosts=["other"], tls=True, store_server=True, compensator=True), NOW)
    assert again["bus-tls"]["tls.crt"] != made["bus-tls"]["tls.crt"]


def test_a_certificate_without_hosts_is_refused() -> None:
    with pytest.raises(HanseError, match="--hosts") as refusal:
        wanted({}, Wishes(tls=True), NOW)
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_a_key_that_cannot_be_read_is_never_replaced_and_never_shown() -> None:
    made = wanted({}, Wishes(), NOW)
    broken = {**made, "authority": made["authority"] | {"account.seed": b"SAGARBAGE"}}
    with pytest.raises(HanseError, match=r"account\.seed") as refusal:
        wanted(broken, Wishes(), NOW)
    assert "SAGARBAGE" not in str(refusal.value)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "of another hub"])
def test_a_second_account_is_never_made_for_a_running_bus(gone: bool) -> None:
    have = wanted({}, ALL, NOW)
    have["authority"] = {} if gone else wanted({}, ALL, NOW)["authority"]
    with pytest.raises(HanseError, match="by which the bus runs") as refusal:
        wanted(have, ALL, NOW)
    assert refusal.value.code is ErrorCode.CONFLICT


def test_accounts_that_a_server_starts_with_are_older_than_whatever_is_pushed() -> None:
    made = wanted({}, Wishes(), NOW)
    text = made["nats-accounts"]["accounts.conf"].decode()
    tokens = [line.split()[1] for line in text.splitlines() if line.startswith("  A")]
    assert len(tokens) == 3
    assert all(issued_at(token) == 1 for token in tokens)
