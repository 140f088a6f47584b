"""Keys, tokens and permissions of the bus, without a server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import TOKEN_S
from hanse_fabric.bus.jwt import claims_of, credentials, read_credentials
from hanse_fabric.bus.matching import matches, owner
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public, verify
from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import STREAMS, SUBJECTS, Role, Verb


@pytest.mark.parametrize(("kind", "letter"), [(KeyKind.OPERATOR, "O"), (KeyKind.ACCOUNT, "A"), (KeyKind.USER, "U")])
def test_a_key_is_read_back_from_its_seed(kind: KeyKind, letter: str) -> None:
    key = KeyPair.create(kind)
    assert key.public.startswith(letter)
    assert key.seed.startswith(f"S{letter}")
    again = KeyPair.from_seed(key.seed)
    assert (again.kind, again.public) == (kind, key.public)
    assert verify(key.public, kind, b"data", again.sign(b"data"))
    assert not verify(key.public, kind, b"other", again.sign(b"data"))


def test_a_key_of_another_implementation_is_read() -> None:
    """The example of nats.io's documentation of nkeys."""
    seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
    assert KeyPair.from_seed(seed).public == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@given(st.text(max_size=80))
def test_an_invalid_nkey_is_refused_and_no_seed_is_shown(text: str) -> None:
    for read in (lambda: decode_public(text, KeyKind.USER), lambda: KeyPair.from_seed(text)):
        with pytest.raises(HanseError) as refusal:
            read()
        assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_a_mistyped_key_fails_its_checksum() -> None:
    public = KeyPair.create(KeyKind.USER).public
    wrong = public[:20] + ("A" if public[20] != "A" else "B") + public[21:]
    with pytest.raises(HanseError):
        decode_public(wrong, KeyKind.USER)


def test_the_repr_of_a_key_does_not_show_its_seed() -> None:
    key = KeyPair.create(KeyKind.USER)
    assert key.seed not in repr(key)


def test_credentials_are_read_back(tmp_path: Path) -> None:
    key = KeyPair.create(KeyKind.USER)
    token = BusAuthority(tmp_path).participant_jwt("p", "north", key.public)
    read, user = read_credentials(credentials(token, key))
    assert (read, user.public) == (token, key.public)


def test_a_token_is_signed_by_the_account_and_names_the_user(tmp_path: Path) -> None:
    authority = BusAuthority(tmp_path)
    key = KeyPair.create(KeyKind.USER)
    head, body, signature = authority.participant_jwt("p", "north", key.public).split(".")
    claims = json.loads(_decoded(body))
    [scope] = claims_of(authority.account_tokens()[authority.account_of("hub")])["nats"]["signing_keys"]
    assert (claims["sub"], claims["iss"]) == (key.public, scope["key"])
    assert claims["nats"]["issuer_account"] == authority.account_of("hub") != authority.account
    assert claims["nats"]["tags"] == ["region:hub", "project:p", "site:north"]
    assert "pub" not in claims["nats"]  # its key's scope says what it may
    assert claims["exp"] - claims["iat"] == TOKEN_S
    assert verify(scope["key"], KeyKind.ACCOUNT, f"{head}.{body}".encode(), _decoded(signature))


@pytest.mark.parametrize("name", ["*", "north.>", "a:b", "", "{{tag(project)}}"])
def test_a_name_that_would_widen_a_scope_is_not_signed(tmp_path: Path, name: str) -> None:
    key = KeyPair.create(KeyKind.USER).public
    for whose in ({"project": name, "participant": "north"}, {"project": "p", "participant": name}):
        with pytest.raises(HanseError, match="a name of small letters"):
            BusAuthority(tmp_path).participant_jwt(**whose, bus_key=key)


def test_an_authority_finds_its_keys_again_and_only_its_owner_reads_them(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    authority = BusAuthority(folder)
    authority.service_credentials(Role.COORDINATOR)
    assert BusAuthority(folder).account == authority.account
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_every_permission_of_a_participant_names_its_project() -> None:
    granted = permissions_for(Role.PARTICIPANT, project="p1", participant="n1")
    for subject in granted["publish"] + granted["subscribe"]:
        assert ".p1" in subject, subject


def test_nobody_may_do_in_jetstream_what_no_row_gives() -> None:
    for role in Role:
        if role in (Role.PROVISIONER, Role.RESTORER):
            continue
        for subject in permissions_for(role, project="p", participant="n")["publish"]:
            assert not subject.startswith(("$JS.API.STREAM.CREATE", "$JS.API.STREAM.UPDATE", "$JS.API.STREAM.DELETE"))
            assert not subject.startswith(("$JS.API.STREAM.MSG.DELETE", "$JS.API.CONSUMER.DELETE", "$SYS"))
            assert subject not in (">", "$JS.>", "$JS.API.>")


def test_a_participants_permissions_fit_in_one_control_line_of_nats() -> None:
    granted = json.dumps(permissions_for(Role.PARTICIPANT, project="p" * 63, participant="n" * 63))
    assert len(granted) < 8192


def test_only_the_aggregator_reads_updates() -> None:
    for role in Role:
        may = any("GET.HANSE_UPDATES" in s for s in permissions_for(role, project="p", participant="n")["publish"])
        assert may == (role is Role.AGGREGATOR)


def test_only_services_ask_a_streams_leader_and_only_for_streams_of_one_subject() -> None:
    """That call names a stream and no subject in it: who may make it reads all of the stream."""
    rows = [row.stream.name for row in SUBJECTS if row.stream is not None]
    assert len(rows) == len(set(rows))
    for role in Role:
        granted = permissions_for(role, project="p", participant="n")["publish"]
        asked = {s.rpartition(".")[2] for s in granted if s.startswith("$JS.API.STREAM.MSG.GET.")}
        read = {
            row.stream.name
            for row in SUBJECTS
            if row.stream is not None and row.rights.get(role, frozenset()) & {Verb.FOLLOW, Verb.LAST}
        }
        assert asked == (set() if role is Role.PARTICIPANT else read)


@pytest.mark.parametrize(
    ("pattern", "subject", "match"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.c", False),
        ("a.*", "a.>", False),
    ],
)
def test_patterns_match_as_in_nats(pattern: str, subject: str, match: bool) -> None:
    assert matches(pattern, subject) is match


def test_every_stored_subject_has_one_owner() -> None:
    for row in SUBJECTS:
        concrete = row.of(**dict.fromkeys(row.tokens, "x"))
        if row.stream is not None:
            assert owner(concrete).name == row.stream.name
        else:
            with pytest.raises(HanseError):
                owner(concrete)


def test_queues_have_workers_and_nobody_follows_them() -> None:
    for row in SUBJECTS:
        if row.stream is not None and row.stream.workers:
            assert row.stream in STREAMS
            assert not any({Verb.FOLLOW, Verb.LAST} & verbs for verbs in row.rights.values())


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
