"""Keys and credentials."""

import stat
from pathlib import Path

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import SigningKey, VerifyKey


def test_a_key_survives_its_file_which_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "signing.pem"
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
