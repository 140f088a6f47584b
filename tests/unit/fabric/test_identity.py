"""Keys and credentials."""

import hashlib
import os
import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import SigningKey, VerifyKey, roster_digest
from hanse_fabric.identity.sealing import SealingKey


def test_a_key_survives_its_file_which_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "home" / "keys" / "signing.pem"
    made = SigningKey.load_or_create(path)
    again = SigningKey.load_or_create(path)
    assert again.public_bytes == made.public_bytes
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["signing.pem"]
    with pytest.raises(HanseError) as refusal:
        SigningKey.create().save(path)
    assert refusal.value.code is ErrorCode.CONFLICT


def test_a_signature_holds_for_its_key_and_data_alone(tmp_path: Path) -> None:
    key = SigningKey.from_seed(bytes(32))
    signature = key.sign(b"data")
    key.verify_key.verify(signature, b"data", what="a result")
    assert not key.verify_key.is_valid(signature, b"date")
    assert not VerifyKey(SigningKey.create().public_bytes).is_valid(signature, b"data")
    with pytest.raises(HanseError, match="a result: the signature") as refusal:
        key.verify_key.verify(b"short", b"data", what="a result")
    assert refusal.value.code is ErrorCode.TAMPERED
    public = tmp_path / "public.pem"
    public.write_text(key.verify_key.pem())
    assert VerifyKey.load(public) == key.verify_key


def test_an_invalid_signing_key_is_refused_with_its_files_name(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(HanseError, match="no such key file"):
        SigningKey.load(path)
    path.write_text("not a key")
    for load in (SigningKey.load, VerifyKey.load):
        with pytest.raises(HanseError, match=r"key\.pem"):
            load(path)
    with pytest.raises(HanseError, match="32 bytes"):
        VerifyKey(b"short")
    with pytest.raises(HanseError, match=re.escape(f"key file {tmp_path}: ")) as refusal:
        SigningKey.load(tmp_path)  # it is a folder
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_a_credential_is_known_again_by_its_hash_and_hides_in_its_repr() -> None:
    made = secrets.make_api_key()
    presented = secrets.parse(f" {made.text}\n", secrets.Kind.API_KEY)
    assert presented == made
    assert presented.matches(made.hash)
    assert not secrets.make_api_key().matches(made.hash)
    assert made.secret not in repr(made)
    assert made.secret not in made.hash


@pytest.mark.parametrize("text", ["", "hanse_", "hanse_abc_def", "hanse_" + "a" * 12 + "_" + "b" * 44])
def test_a_malformed_key_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(HanseError) as refusal:
        secrets.parse(text, secrets.Kind.API_KEY)
    assert refusal.value.code is ErrorCode.UNAUTHENTICATED
    assert "b" * 44 not in str(refusal.value)


def test_a_join_token_given_as_an_api_key_is_told_apart() -> None:
    with pytest.raises(HanseError, match="API key: a join token was given"):
        secrets.parse(secrets.make_join_token().text, secrets.Kind.API_KEY)


def test_of_two_processes_that_make_a_key_at_once_both_have_the_one_that_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others, create = tmp_path / "signing.pem", SigningKey.create(), SigningKey.create

    def created_while_another_saves() -> SigningKey:
        others.save(path)
        return create()

    monkeypatch.setattr(SigningKey, "create", created_while_another_saves)
    assert SigningKey.load_or_create(path).public_bytes == others.public_bytes


def test_a_key_is_saved_though_another_thread_has_removed_the_half_written_file_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def linked_while_another_ends(partial: Path, path: Path) -> None:
        link(partial, path)
        partial.unlink()

    monkeypatch.setattr(os, "link", linked_while_another_ends)
    made = SigningKey.load_or_create(tmp_path / "signing.pem")
    assert SigningKey.load(tmp_path / "signing.pem").public_bytes == made.public_bytes


def test_a_key_that_cannot_be_saved_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_key: SigningKey, path: Path) -> None:
        raise HanseError(ErrorCode.NO_SPACE, f"{path}: the disk is full")

    path = tmp_path / "there.pem"
    made = SigningKey.load_or_create(path)
    monkeypatch.setattr(SigningKey, "save", full)
    with pytest.raises(HanseError) as refusal:
        SigningKey.load_or_create(tmp_path / "signing.pem")
    assert refusal.value.code is ErrorCode.NO_SPACE
    # One that is there is read where nothing can be written, as from a mounted secret.
    assert SigningKey.load_or_create(path).public_bytes == made.public_bytes


def test_keys_are_equal_by_their_bytes_and_to_nothing_else() -> None:
    key, other = SigningKey.from_seed(bytes(32)), SigningKey.from_seed(b"1" * 32)
    assert key.verify_key == VerifyKey(key.public_bytes)
    assert hash(key.verify_key) == hash(VerifyKey(key.public_bytes))
    assert key.verify_key != other.verify_key
    assert key.verify_key != key.public_bytes
    assert len({key.verify_key, VerifyKey(key.public_bytes), other.verify_key}) == 2


def test_a_key_of_another_algorithm_or_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agreement.pem"
    SealingKey.create().save(path)
    with pytest.raises(HanseError, match="Ed25519 private key"):
        SigningKey.load(path)
    public = X25519PrivateKey.generate().public_key()
    path.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(HanseError, match="Ed25519 public key"):
        VerifyKey.load(path)
    for length in (31, 33):
        with pytest.raises(HanseError, match=f"{length} bytes"):
            SigningKey.from_seed(bytes(length))
        with pytest.raises(HanseError, match=f"{length} bytes"):
            VerifyKey(bytes(length))


def test_a_roster_is_of_whole_keys_in_any_order() -> None:
    one, two = bytes(32), b"1" * 32
    assert roster_digest([two, one]) == roster_digest([one, two]) == hashlib.sha256(one + two).digest()
    with pytest.raises(HanseError, match="31 bytes"):
        roster_digest([one, two[:31]])
