"""A log of lines, each with the hash of the one before: its bytes, and what is found when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_fabric.chain import ORIGIN, ChainedLog, ChainReader, entry_of, read_chain, verify_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hub_api import START

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
    found = verify_chain(tmp_path, NAME)
    assert (found.broken, found.reason) == (1, f"{NAME}.jsonl is missing, of which {NAME}.head keeps the end")


@pytest.mark.parametrize("head", [b"", b"2\n", b"x" * 20 + b" " + b"a" * 64, b"2 " + b"a" * 63, b"2 a b", b"\xff \xff"])
def test_a_head_that_is_not_as_it_was_written_is_said_to_be_that(tmp_path: Path, head: bytes) -> None:
    written(tmp_path, {"n": 1}, {"n": 2}).close()
    (tmp_path / f"{NAME}.head").write_bytes(head)
    found = verify_chain(tmp_path, NAME)
    assert (found.broken, f"{NAME}.head is not as it was written" in found.reason) == (1, True)
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
