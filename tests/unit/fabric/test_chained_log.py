"""A log of lines, each with the hash of the one before: its bytes, and what is found when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_fabric import chain, durable
from hanse_fabric.chain import (
    ORIGIN,
    ChainedLog,
    ChainReader,
    LogCheck,
    entries_with,
    entry_of,
    read_chain,
    verify_chain,
)
from hanse_fabric.errors import ErrorCode, HanseError
from hub_api import START
from open_files import open_under

NAME = "left"


def written(folder: Path, *bodies: dict[str, object]) -> ChainedLog:
    log = ChainedLog(folder, NAME, HandClock(START))
    for body in bodies:
        log.append(body)
    return log


def test_a_line_has_golden_bytes_with_names_in_order_and_letters_as_ascii(tmp_path: Path) -> None:
    written(tmp_path, {"what": "Größe", "about": {"z": 1, "a": 2}}).close()
    line = (tmp_path / f"{NAME}.jsonl").read_bytes()
    head, _, rest = line.partition(b'"hash":"')
    digest, _, tail = rest.partition(b'"')
    assert head == b'{"about":{"a":2,"z":1},'
    moment = START.isoformat(timespec="microseconds").encode()
    assert tail == b',"previous":"%s","sequence":1,"time":"%s","what":"Gr\\u00f6\\u00dfe"}\n' % (
        ORIGIN.encode(),
        moment,
    )
    assert len(digest) == 64
    assert (tmp_path / f"{NAME}.head").read_bytes() == b"00000000000000000001 %s\n" % digest


@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_has_lost_lines_at_its_end_is_not_opened(tmp_path: Path, left: int) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    path = tmp_path / f"{NAME}.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    with pytest.raises(HanseError, match=r"its last line is not the one|its head says that it has 2 entries") as raised:
        ChainedLog(tmp_path, NAME)
    assert raised.value.code is ErrorCode.TAMPERED


def test_a_log_whose_last_line_is_another_than_its_head_names_is_not_opened(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    other = tmp_path / "other"
    written(other, {"n": 1}, {"n": 3}).close()
    (tmp_path / f"{NAME}.jsonl").write_bytes((other / f"{NAME}.jsonl").read_bytes())
    with pytest.raises(HanseError, match="its last line is not the one that it ended with") as raised:
        ChainedLog(tmp_path, NAME)
    assert raised.value.code is ErrorCode.TAMPERED


def test_what_another_process_has_appended_is_taken_in_and_what_does_not_follow_is_refused(tmp_path: Path) -> None:
    mine, others = written(tmp_path, {"n": 1}), ChainedLog(tmp_path, NAME)
    assert mine.catch_up() == []
    others.append({"n": 2}, {"n": 3})
    assert [entry["n"] for entry in mine.catch_up()] == [2, 3]
    assert (mine.newest, mine.entries, mine.size) == (others.newest, 3, others.size)
    path = tmp_path / f"{NAME}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(HanseError, match="entry 4 does not follow") as raised:
        mine.catch_up()
    assert raised.value.code is ErrorCode.TAMPERED
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(HanseError, match="it is shorter than it was"):
        mine.catch_up()
    mine.close()
    others.close()


def test_a_reader_goes_on_where_it_was_and_begins_anew_with_another_file(tmp_path: Path) -> None:
    log, reader = written(tmp_path, {"n": 1}, {"n": 2}), ChainReader(tmp_path, NAME)
    assert (reader.catch_up().entries, len(reader)) == (2, 2)
    log.append({"n": 3})
    assert (reader.catch_up().entries, len(reader)) == (3, 3)
    assert [line.count(b'"n":') for line in reader.newest_first()] == [1, 1, 1]
    assert [b'"n":%d' % number in line for number, line in zip((2, 1), reader.newest_first(3), strict=True)] == [
        True
    ] * 2
    log.close()
    for path in tmp_path.glob(f"{NAME}.*"):
        path.unlink()
    written(tmp_path, {"n": 7}).close()
    assert (reader.catch_up().entries, len(reader)) == (1, 1)
    assert [entry["n"] for entry in read_chain(tmp_path, NAME)] == [7]
    assert verify_chain(tmp_path, NAME).broken is None


def test_a_last_line_that_was_altered_is_refused_as_tampered_with(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    path = tmp_path / f"{NAME}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":3'))
    with pytest.raises(HanseError, match="its last line is not the one that it ended with") as raised:
        ChainedLog(tmp_path, NAME)
    assert raised.value.code is ErrorCode.TAMPERED


def test_a_line_in_the_middle_that_was_made_anew_is_seen_by_the_line_after_it(tmp_path: Path) -> None:
    """Its own hash is right, its number too, and the head names the true last line."""
    written(tmp_path, {"n": 1}, {"n": 2}, {"n": 3}).close()
    other = tmp_path / "other"
    written(other, {"n": 1}, {"n": 9}).close()
    path = tmp_path / f"{NAME}.jsonl"
    first, _, last = path.read_bytes().splitlines(keepends=True)
    forged = (other / f"{NAME}.jsonl").read_bytes().splitlines(keepends=True)[1]
    path.write_bytes(first + forged + last)
    found = verify_chain(tmp_path, NAME)
    assert (found.entries, found.broken, found.reason) == (2, 3, "it does not follow the line before it")
    with pytest.raises(HanseError, match="entry 3 is not as it was written"):
        list(read_chain(tmp_path, NAME))


def test_where_no_log_was_begun_none_is_found_and_where_one_was_removed_it_is_missing(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=f"no {NAME} log") as raised:
        verify_chain(tmp_path, NAME)
    assert raised.value.code is ErrorCode.NOT_FOUND
    written(tmp_path, {"n": 1}).close()
    (tmp_path / f"{NAME}.jsonl").unlink()
    missing = LogCheck(0, 1, f"{NAME}.jsonl is missing, of which {NAME}.head keeps the end")
    assert verify_chain(tmp_path, NAME) == missing


@pytest.mark.parametrize(
    "head",
    [
        b"", b"2\n", b"x" * 20 + b" " + b"a" * 64, b"x2 " + b"a" * 64, b"2 " + b"a" * 63, b"2 " + b"a" * 64 + b" b",
        b"2 a b", b"\xff \xff",
    ],
)  # fmt: skip
def test_a_head_that_is_not_as_it_was_written_is_said_to_be_that(tmp_path: Path, head: bytes) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    (tmp_path / f"{NAME}.head").write_bytes(head)
    found = verify_chain(tmp_path, NAME)
    assert (found.entries, found.broken, f"{NAME}.head is not as it was written" in found.reason) == (0, 1, True)
    with pytest.raises(HanseError, match=f"{NAME}.head is not as it was written") as raised:
        ChainedLog(tmp_path, NAME)
    assert raised.value.code is ErrorCode.TAMPERED


def forged(entry: dict[str, object]) -> bytes:
    """A line with a hash that is right."""

    def text() -> bytes:
        return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()

    entry.pop("hash", None)
    entry["hash"] = hashlib.sha256(text()).hexdigest()
    return text() + b"\n"


def test_a_line_that_follows_and_has_another_number_is_found(tmp_path: Path) -> None:
    """Else who writes on a log could say that it has more entries, or fewer, than it has lines."""
    mine = written(tmp_path, {"n": 1})
    path = tmp_path / f"{NAME}.jsonl"
    first = path.read_bytes()
    for number in (1, 3):
        path.write_bytes(first + forged({"n": 2, "previous": mine.newest, "sequence": number, "time": ""}))
        found = verify_chain(tmp_path, NAME)
        assert (found.entries, found.broken) == (1, 2)
        assert found.reason == f"it is entry {number}: lines are missing or misplaced"
        checks: list[Callable[[], object]] = [lambda: list(read_chain(tmp_path, NAME)), mine.catch_up]
        for check in checks:
            with pytest.raises(HanseError, match="entry 2 "):
                check()
    path.write_bytes(first + forged({"n": 2, "previous": mine.newest, "sequence": 2, "time": ""}))
    assert verify_chain(tmp_path, NAME).broken is None, "the control: it is the number alone"
    mine.close()


@pytest.mark.parametrize("follows", [True, False])
def test_a_line_that_follows_another_or_is_none_is_found_by_whoever_reads(tmp_path: Path, follows: bool) -> None:
    mine = written(tmp_path, {"n": 1})
    path = tmp_path / f"{NAME}.jsonl"
    line = forged({"n": 2, "previous": mine.newest if follows else ORIGIN, "sequence": 2, "time": ""})
    path.write_bytes(path.read_bytes() + (line.replace(b'"n":2', b'"n":3') if follows else line))
    checks: list[Callable[[], object]] = [mine.catch_up, lambda: list(read_chain(tmp_path, NAME))]
    for check in checks:
        with pytest.raises(HanseError, match="entry 2 ") as raised:
            check()
        assert raised.value.code is ErrorCode.TAMPERED
    mine.close()


def test_a_line_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}).close()
    line = (tmp_path / f"{NAME}.jsonl").read_bytes()
    assert (entry_of(line)["n"], entry_of(line)["sequence"]) == (1, 1)
    with pytest.raises(HanseError, match="a line of the log is not as it was written") as raised:
        entry_of(line.replace(b'"n":1', b'"n":2'))
    assert raised.value.code is ErrorCode.TAMPERED


LONG = "x" * 200_000
"""More than is read of a log's end at first."""


def test_a_log_whose_last_line_is_long_is_opened_again(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": LONG}).close()
    again = ChainedLog(tmp_path, NAME)
    assert (again.entries, again.torn) == (2, 0)
    again.append({"n": 3})
    again.close()
    assert [entry["n"] for entry in read_chain(tmp_path, NAME)] == [1, LONG, 3]


@pytest.mark.parametrize("before", ["short", LONG])
def test_a_long_line_that_a_crash_has_torn_is_removed(tmp_path: Path, before: str) -> None:
    written(tmp_path, {"n": before}).close()
    path = tmp_path / f"{NAME}.jsonl"
    whole, torn = path.stat().st_size, b'{"n":"' + LONG.encode()
    with path.open("ab") as log:
        log.write(torn)
    again = ChainedLog(tmp_path, NAME)
    assert (again.entries, again.torn, again.size, path.stat().st_size) == (1, len(torn), whole, whole)
    again.close()


def test_a_log_that_begins_with_a_long_line_that_was_torn_is_begun_anew(tmp_path: Path) -> None:
    written(tmp_path).close()
    (tmp_path / f"{NAME}.jsonl").write_text(LONG)
    again = ChainedLog(tmp_path, NAME)
    assert (again.entries, again.torn, again.size) == (0, len(LONG), 0)
    again.close()


def test_a_log_and_its_folders_are_their_owners_alone_and_its_files_are_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "home"
    log = ChainedLog(folder, NAME)
    assert len(open_under(folder)) == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        f"{NAME}.jsonl": 0o600, f"{NAME}.head": 0o600,
    }  # fmt: skip
    log.close()
    assert open_under(folder) == []


def test_a_log_without_its_head_is_not_opened_and_no_line_of_it_is_vouched_for(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    (tmp_path / f"{NAME}.head").unlink()
    said = f"{NAME}.head is missing: whether lines were cut off the end cannot be told"
    assert verify_chain(tmp_path, NAME) == LogCheck(0, 1, said)
    with pytest.raises(HanseError, match=f"{NAME}.head is missing") as raised:
        ChainedLog(tmp_path, NAME)
    assert raised.value.code is ErrorCode.TAMPERED
    assert not (tmp_path / f"{NAME}.head").exists()


def test_what_append_has_returned_from_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, synced = written(tmp_path), []

    def sync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(durable, "sync", sync)
    log.append({"n": 1}, {"n": 2})
    assert synced == [(tmp_path / f"{NAME}.jsonl").read_bytes()]
    assert synced[0].count(b"\n") == log.entries == 2
    log.close()


def test_of_entries_for_which_the_disk_has_no_room_none_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, {"n": 1})
    before, size, newest = (tmp_path / f"{NAME}.jsonl").read_bytes(), log.size, log.newest

    def full(_descriptor: int) -> None:
        raise durable.no_space(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", full)
        with pytest.raises(HanseError) as raised:
            log.append({"n": 2}, {"n": 3})
    assert raised.value.code is ErrorCode.NO_SPACE
    assert ((tmp_path / f"{NAME}.jsonl").read_bytes(), log.size, log.newest, log.entries) == (before, size, newest, 1)
    log.append({"n": 4})
    log.close()
    assert [entry["n"] for entry in read_chain(tmp_path, NAME)] == [1, 4]
    assert verify_chain(tmp_path, NAME) == LogCheck(2)


def test_a_line_that_another_process_left_torn_is_cut_off_by_whoever_takes_in_the_others(tmp_path: Path) -> None:
    mine, others = written(tmp_path, {"n": 1}), ChainedLog(tmp_path, NAME)
    others.append({"n": 2})
    others.close()
    path = tmp_path / f"{NAME}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    assert [entry["n"] for entry in mine.catch_up()] == [2]
    assert (path.read_bytes(), mine.size, mine.entries) == (whole, len(whole), 2)
    mine.append({"n": 3})
    assert verify_chain(tmp_path, NAME) == LogCheck(3)
    path.write_bytes(path.read_bytes() + b"torn")
    assert mine.catch_up() == [], "it has no whole line"
    mine.close()
    assert verify_chain(tmp_path, NAME) == LogCheck(3)


def test_a_torn_last_line_is_cut_off_when_the_log_is_opened_and_its_bytes_are_counted(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    path = tmp_path / f"{NAME}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    torn = "a last line was torn by a crash; the next start repairs it"
    assert verify_chain(tmp_path, NAME) == LogCheck(2, None, torn)
    assert [entry["n"] for entry in read_chain(tmp_path, NAME)] == [1, 2]
    log = ChainedLog(tmp_path, NAME)
    assert (log.torn, log.entries, log.size, path.read_bytes()) == (30, 2, len(whole), whole)
    log.close()
    # The head names the second line: it was there in whole, and no crash tears what is on the disk.
    path.write_bytes(whole[:-1])
    assert verify_chain(tmp_path, NAME) == LogCheck(1, 2, "the line is not as it was written")
    # A whole line that is none was not torn.
    path.write_bytes(whole + b"{}\n")
    assert verify_chain(tmp_path, NAME) == LogCheck(2, 3, "the line is not as it was written")


def test_the_first_line_of_a_log_may_be_torn(tmp_path: Path) -> None:
    written(tmp_path).close()
    (tmp_path / f"{NAME}.jsonl").write_bytes(b'{"n":')
    log = ChainedLog(tmp_path, NAME)
    assert (log.torn, log.entries, log.size, log.newest) == (5, 0, 0, ORIGIN)
    log.append({"n": 1})
    log.close()
    assert verify_chain(tmp_path, NAME) == LogCheck(1)


@pytest.mark.parametrize("more", [-200, -2, -1, 0, 1, 2, 1000])
def test_the_last_line_is_found_wherever_the_part_that_is_read_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    log = written(tmp_path, {"n": 1}, {"n": 2}, {"n": 3})
    lines = (tmp_path / f"{NAME}.jsonl").read_bytes().splitlines(keepends=True)
    log.close()
    monkeypatch.setattr(chain, "_TAIL", len(lines[-1]) + more)
    again = ChainedLog(tmp_path, NAME)
    assert (again.entries, again.newest, again.torn) == (3, log.newest, 0)
    again.close()


def test_a_log_goes_on_after_a_power_cut_that_kept_an_older_head(tmp_path: Path) -> None:
    """The head is not synced: it may be older than the log, never newer."""
    log = written(tmp_path, {"n": 1})
    head = (tmp_path / f"{NAME}.head").read_bytes()
    log.append({"n": 2})
    log.close()
    (tmp_path / f"{NAME}.head").write_bytes(head)
    assert verify_chain(tmp_path, NAME) == LogCheck(2)
    again = ChainedLog(tmp_path, NAME)
    assert (again.entries, again.newest) == (2, log.newest)
    again.append({"n": 3})
    again.close()
    assert verify_chain(tmp_path, NAME) == LogCheck(3)


def test_a_last_line_that_follows_and_is_another_than_the_heads_is_found(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    path = tmp_path / f"{NAME}.jsonl"
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(first + forged({"n": 3, "previous": entry_of(first)["hash"], "sequence": 2, "time": ""}))
    assert verify_chain(tmp_path, NAME) == LogCheck(1, 2, f"it is not the line that {NAME}.head names")
    path.write_bytes(first)
    assert verify_chain(tmp_path, NAME) == LogCheck(1, 2, "1 lines are missing at the end")


def test_a_reader_begins_anew_with_a_file_that_is_another_or_shorter_and_has_nothing_of_one_that_is_gone(
    tmp_path: Path,
) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    other = tmp_path / "other"
    written(other, {"n": 7}, {"n": 8}, {"n": 9}).close()
    reader = ChainReader(tmp_path, NAME)
    assert reader.catch_up() == LogCheck(2)
    for part in ("jsonl", "head"):
        (other / f"{NAME}.{part}").replace(tmp_path / f"{NAME}.{part}")
    assert reader.catch_up() == LogCheck(3)
    assert [entry_of(line)["n"] for line in reader.newest_first()] == [9, 8, 7]
    # The file is the same, and has lost what was read of it.
    written(other, {"n": 5}).close()
    for part in ("jsonl", "head"):
        (tmp_path / f"{NAME}.{part}").write_bytes((other / f"{NAME}.{part}").read_bytes())
    assert reader.catch_up() == LogCheck(1)
    assert [entry_of(line)["n"] for line in reader.newest_first()] == [5]
    (tmp_path / f"{NAME}.jsonl").unlink()
    assert reader.catch_up().broken == 1
    assert len(reader) == 0


def test_the_newest_lines_are_told_from_any_number_on(tmp_path: Path) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}, {"n": 3}).close()
    reader = ChainReader(tmp_path, NAME)
    reader.catch_up()
    for before, told in ((None, [3, 2, 1]), (9, [3, 2, 1]), (4, [3, 2, 1]), (3, [2, 1]), (2, [1]), (1, [])):
        assert [entry_of(line)["n"] for line in reader.newest_first(before)] == told


def test_entries_with_a_part_are_found_in_any_line_and_none_that_is_not_as_it_was_written(tmp_path: Path) -> None:
    bodies = [{"what": what, "n": n} for n, what in enumerate(("asked", "sent", "asked", "read", "sent"))]
    written(tmp_path, *bodies).close()
    path = tmp_path / f"{NAME}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":6'))
    found = entries_with(tmp_path, NAME, b'"what":"asked"', b'"what":"sent"')
    assert [entry["n"] for entry in found] == [0, 1, 4]


def test_a_line_is_read_only_in_the_bytes_that_it_was_written_in(tmp_path: Path) -> None:
    """Also where its hash is right: of other bytes the next reader could read something else."""
    good: dict[str, object] = {"n": 1, "previous": ORIGIN, "sequence": 1, "time": ""}
    line = forged(dict(good))
    assert entry_of(line)["n"] == 1, "the control"
    for other in (
        line.replace(b":", b": "), line[:-1], line + b"\n", line.replace(b'{"', b'{"n":0,"', 1), b"[]\n", b"1\n", b"\n",
        b"[" * 100_000, forged({"n": 1, "sequence": 1}), forged({"n": 1, "previous": ORIGIN}),
        forged(good | {"sequence": "1"}), line.replace(b'"hash"', b'"hush"'),
    ):  # fmt: skip
        with pytest.raises(HanseError, match="a line of the log is not as it was written"):
            entry_of(other)
