"""Sealing keys of some hours: when there is another, until when an old one opens, and that it is destroyed then."""

from datetime import UTC, datetime, timedelta

import pytest

from hanse_compensator.rotating_keys import RotatingKeys
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_privacy.compensators.keys import statement

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OWNER = SigningKey.create()
HOURS = timedelta(hours=1)


@pytest.fixture
def keys(tmp_path):
    return RotatingKeys(tmp_path / "keys", OWNER, used=24 * HOURS, kept=12 * HOURS)


def test_a_key_is_announced_for_half_its_time_and_then_another(keys, tmp_path):
    first = keys.present(NOW)
    assert first.until == NOW + 24 * HOURS
    assert keys.present(NOW + 11 * HOURS) == first
    second = keys.present(NOW + 12 * HOURS)
    assert (second.key, second.until) != (first.key, first.until)
    VerifyKey(OWNER.public_bytes).verify(second.signature, statement(second.key, second.until), what="key")
    # A replica, or the same one restarted, announces the same.
    again = RotatingKeys(tmp_path / "keys", OWNER, used=24 * HOURS, kept=12 * HOURS)
    assert again.present(NOW + 13 * HOURS) == second


def test_an_old_key_opens_until_nothing_that_it_was_announced_for_is_open(keys, tmp_path):
    first = keys.present(NOW)
    assert len(keys.private(first.key, NOW + 36 * HOURS)) == 32
    before = [path.read_bytes() for path in (tmp_path / "keys").iterdir()]
    with pytest.raises(HanseError, match="does not exist any more") as gone:
        keys.private(first.key, NOW + 36.1 * HOURS)
    assert gone.value.code is ErrorCode.GONE
    assert list((tmp_path / "keys").iterdir()) == []
    assert len(before) == 1


def test_the_file_of_a_destroyed_key_holds_nothing_of_it(keys, tmp_path):
    keys.present(NOW)
    path = next((tmp_path / "keys").iterdir())
    assert b"PRIVATE KEY" in path.read_bytes()
    (tmp_path / "second name").hardlink_to(path)
    keys.destroy(NOW + 40 * HOURS)
    assert set((tmp_path / "second name").read_bytes()) == {0}


def test_files_are_their_owners_alone(keys, tmp_path):
    keys.present(NOW)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()] == [0o600]


@pytest.mark.parametrize("wrong", [{"used": 0 * HOURS}, {"kept": -1 * HOURS}])
def test_durations_above_nothing_are_wanted(tmp_path, wrong):
    with pytest.raises(HanseError, match="a duration above 0"):
        RotatingKeys(tmp_path, OWNER, **{"used": HOURS, "kept": HOURS, **wrong})
