"""The outbox log: whatever is done to it afterwards is seen, and a crash is not mistaken for that."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_datapod.cli import main
from hanse_datapod.home.outbox import HEAD, LOG, MISSING, RESERVE, RESERVE_BYTES, RESTORED, Leaving, Outbox, verify_log
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LedgerHead
from open_files import open_under


def fill(home: Path, count: int) -> None:
    outbox = Outbox(home)
    for number in range(count):
        outbox.append(Leaving("update", f"subject.{number}", number, f"{number:064x}"))
    outbox.close()


@contextmanager
def filled(count: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), count)
        yield Path(folder)


def test_an_untouched_log_is_intact_across_restarts(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    fill(tmp_path, 2)
    assert verify_log(tmp_path).broken is None
    assert verify_log(tmp_path).entries == 5


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_flipped_bit_is_found_in_its_own_line(data: st.DataObject) -> None:
    with filled(5) as home:
        log = home / LOG
        content = bytearray(log.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        line = content[:place].count(b"\n") + 1
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        log.write_bytes(content)
        assert verify_log(home).broken == line


@given(st.integers(0, 4))
@settings(deadline=None)
def test_a_dropped_line_is_found(number: int) -> None:
    with filled(5) as home:
        lines = (home / LOG).read_bytes().splitlines(keepends=True)
        del lines[number]
        (home / LOG).write_bytes(b"".join(lines))
        assert verify_log(home).broken == number + 1


@given(st.integers(0, 4), st.integers(0, 4))
@settings(deadline=None)
def test_swapped_lines_are_found(one: int, other: int) -> None:
    with filled(5) as home:
        lines = (home / LOG).read_bytes().splitlines(keepends=True)
        lines[one], lines[other] = lines[other], lines[one]
        (home / LOG).write_bytes(b"".join(lines))
        assert verify_log(home).broken == (None if one == other else min(one, other) + 1)


def test_a_missing_head_is_found(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    (tmp_path / HEAD).unlink()
    assert verify_log(tmp_path).broken is not None
    with pytest.raises(HanseError, match=r"outbox\.head is missing") as caught:
        Outbox(tmp_path)
    assert caught.value.code is ErrorCode.TAMPERED


@given(st.integers(1, 200))
@settings(deadline=None)
def test_a_line_torn_by_a_crash_is_removed_and_noted(torn: int) -> None:
    with filled(2) as home:
        log, head = home / LOG, (home / HEAD).read_bytes()
        fill(home, 1)
        whole = log.read_bytes()
        last = len(whole.splitlines(keepends=True)[-1])
        log.write_bytes(whole[: len(whole) - min(torn, last - 1)])
        (home / HEAD).write_bytes(head)  # the head is written after the line is on the disk
        assert verify_log(home).broken is None
        Outbox(home).close()
        assert verify_log(home).broken is None
        assert json.loads(log.read_bytes().splitlines()[-1])["what"] == "repaired"


def test_a_log_with_an_older_head_is_intact_as_a_power_cut_leaves_it(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    head = (tmp_path / HEAD).read_bytes()
    fill(tmp_path, 2)
    (tmp_path / HEAD).write_bytes(head)
    assert verify_log(tmp_path).broken is None
    fill(tmp_path, 1)
    assert verify_log(tmp_path).entries == 4


def test_a_log_cut_short_is_not_continued(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / LOG).write_bytes(b"".join((tmp_path / LOG).read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(HanseError) as caught:
        Outbox(tmp_path)
    assert caught.value.code is ErrorCode.TAMPERED


def test_the_command_names_the_first_broken_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, 3)
    assert main(["verify-log", "--home", str(tmp_path)]) == 0
    assert "3 entries, all intact" in capsys.readouterr().out
    content = (tmp_path / LOG).read_text().replace("subject.1", "subject.9")
    (tmp_path / LOG).write_text(content)
    assert main(["verify-log", "--home", str(tmp_path)]) == ErrorCode.TAMPERED.value.exit_status
    assert "entry 2 is broken" in capsys.readouterr().out


def test_a_log_that_lacks_what_others_have_seen_is_not_gone_on_with_until_the_administrator_says_why(
    tmp_path: Path,
) -> None:
    home = tmp_path / "site"
    fill(home, 1)
    copy = shutil.copytree(home, tmp_path / "copy")
    fill(home, 1)
    seen = _head(home)
    shutil.copytree(copy, home, dirs_exist_ok=True)
    held = _head(home)
    log = Outbox(home)
    for head in (None, held):
        log.require(head)
    for head in (seen, None, held, seen):
        with pytest.raises(HanseError, match="shorter than it was, or another") as caught:
            log.require(head)
        assert caught.value.code is ErrorCode.TAMPERED
    log.close()
    again = Outbox(home)
    with pytest.raises(HanseError, match="shorter"):
        again.require(None)
    again.append(Leaving(RESTORED, "the disk broke", 0))
    again.close()
    whole = Outbox(home)
    assert not whole.knows(seen)
    for head in (None, seen, held):
        whole.require(head)
    assert whole.knows(seen), "it is not looked for again"
    whole.close()
    told = [json.loads(line) for line in (home / LOG).read_text().splitlines()]
    assert [entry["what"] for entry in told] == ["update", MISSING, RESTORED]
    noted = {"to": "entry 2, which this site has signed", "size": 0, "digest": seen.head}
    assert noted.items() <= told[1].items(), "a decision's digest, and no bytes that left"


def test_what_the_administrator_has_explained_explains_nothing_that_is_found_missing_later(tmp_path: Path) -> None:
    log, lost = (
        Outbox(tmp_path),
        [LedgerHead.model_construct(entries=9, head=f"{each:064x}", signature=b"") for each in (1, 2)],
    )
    with pytest.raises(HanseError, match="shorter"):
        log.require(lost[0])
    log.append(Leaving(RESTORED, "the disk broke", 0))
    log.close()
    again = Outbox(tmp_path)
    again.require(lost[0])
    with pytest.raises(HanseError, match="shorter") as caught:
        again.require(lost[1])
    assert caught.value.code is ErrorCode.TAMPERED
    again.close()


def test_an_entry_has_what_is_known_of_what_leaves_and_nothing_else(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.append(
        Leaving("update", "subject", 1), Leaving("update", "subject", 1, task="r/r1", shape="2", masked=False)
    )
    outbox.close()
    bare, known = (json.loads(line) for line in (tmp_path / LOG).read_text().splitlines())
    assert known.keys() - bare.keys() == {"task", "shape", "masked"}
    assert (known["task"], known["shape"], known["masked"]) == ("r/r1", "2", False)


def test_an_outbox_holds_its_log_alone_open_until_it_is_closed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.append(Leaving("update", "subject", 1))
    held = open_under(tmp_path)
    assert held
    assert not [path for path in held if path.endswith(RESERVE)]
    outbox.close()
    assert not open_under(tmp_path)


def test_the_reserve_is_the_owners_and_has_its_bytes_on_the_disk(tmp_path: Path) -> None:
    Outbox(tmp_path).close()
    found = (tmp_path / RESERVE).stat()
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o600, RESERVE_BYTES)


def test_a_reserve_that_the_disk_had_no_room_for_is_made_by_the_next_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        outbox = Outbox(tmp_path)
    assert not (tmp_path / RESERVE).exists(), "a part of it would be taken for the whole"
    outbox.append(Leaving("update", "subject", 1))
    assert (tmp_path / RESERVE).stat().st_size == RESERVE_BYTES
    outbox.close()


def test_a_full_disk_without_a_reserve_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, tries = Outbox(tmp_path), list[int]()
    (tmp_path / RESERVE).unlink()

    def full(*_: object) -> None:
        tries.append(1)
        raise HanseError(ErrorCode.NO_SPACE, "outbox.jsonl: no space left")

    with monkeypatch.context() as patch:
        patch.setattr(outbox._log, "append", full)
        with pytest.raises(HanseError) as caught:
            outbox.append(Leaving("update", "subject", 1))
    assert (caught.value.code, tries) == (ErrorCode.NO_SPACE, [1])
    assert (outbox.head()[0], (tmp_path / RESERVE).exists()) == (0, False)
    outbox.close()


def _head(home: Path) -> LedgerHead:
    log = Outbox(home)
    head = _head_of(log)
    log.close()
    return head


def _head_of(log: Outbox) -> LedgerHead:
    entries, digest = log.head()
    return LedgerHead.model_construct(entries=entries, head=digest, signature=b"")


def test_the_reserve_is_given_up_for_a_full_disk_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path)

    def tampered(*_: object) -> None:
        raise HanseError(ErrorCode.TAMPERED, "outbox.jsonl: another has written here")

    monkeypatch.setattr(outbox._log, "append", tampered)
    with pytest.raises(HanseError) as caught:
        outbox.append(Leaving("update", "subject", 1))
    assert caught.value.code is ErrorCode.TAMPERED
    assert (tmp_path / RESERVE).exists()


def test_heads_that_are_not_remembered_any_more_are_found_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest are remembered: a site answers for years."""
    monkeypatch.setattr("hanse_datapod.home.outbox._REMEMBERED", 2)
    outbox, heads = Outbox(tmp_path), list[LedgerHead]()
    for number in range(4):
        outbox.append(Leaving("update", "s", number, f"{number:064x}"))
        heads.append(_head_of(outbox))
    assert [outbox.knows(head) for head in heads] == [False, False, True, True]
    outbox.require(heads[0])
    assert [outbox.knows(head) for head in heads] == [True, False, False, True]
    assert outbox.head()[0] == 4, "nothing was missing"
