"""A full disk at the site: refused before training, with an answer to the owner, and nothing half-written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse_datapod.home.outbox import RESERVE, RESERVE_BYTES, Leaving, Outbox, verify_log
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome
from unit.datapod.site_actors import Site, task


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB: a tmpfs, which needs the rights to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, leave: int = 0) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - leave))


async def test_a_full_disk_is_refused_before_training_and_the_owner_is_told(small_disk: Path) -> None:
    site = Site(small_disk / "site")
    await site.start()
    fill(small_disk)
    await site.give(task())
    [(result, _)] = await site.results(1)
    await site.stop()
    assert (result.outcome, result.code) == (Outcome.REFUSED, "no-space")
    assert "free" in result.reason
    assert site.worker.requests == []
    assert verify_log(site.home).broken is None
    (small_disk / "filler").unlink()


async def test_the_next_task_is_done_once_there_is_space_again(small_disk: Path) -> None:
    site = Site(small_disk / "site")
    await site.start()
    fill(small_disk)
    await site.give(task("r1-train"))
    await site.results(1)
    (small_disk / "filler").unlink()
    await site.give(task("r2-train", round=2))
    second = (await site.results(2))[1][0]
    await site.stop()
    assert second.outcome is Outcome.DONE


async def test_a_disk_that_fills_during_the_work_leaves_no_half_written_update(small_disk: Path) -> None:
    site = Site(small_disk / "site")
    site.worker.size = 3 << 20
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    await site.stop()
    assert result.outcome is not Outcome.DONE
    assert not list((site.home / "work").iterdir())


def test_a_file_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(small_disk: Path) -> None:
    target = small_disk / "record"
    write_durably(target, b"old")
    with pytest.raises(HanseError) as caught:
        write_durably(target, b"\1" * (2 << 20))
    assert caught.value.code is ErrorCode.NO_SPACE
    assert [path.name for path in small_disk.iterdir()] == ["record"]
    assert target.read_bytes() == b"old"


def test_the_outbox_writes_into_its_reserve_on_a_full_disk_and_keeps_a_new_one_when_there_is_space(
    small_disk: Path,
) -> None:
    outbox, reserve = Outbox(small_disk), small_disk / RESERVE
    entry = Leaving("update", "subject." + "x" * 5000, 1)
    assert reserve.stat().st_size == RESERVE_BYTES
    fill(small_disk)
    outbox.append(entry)
    assert not reserve.exists()
    with pytest.raises(HanseError) as caught:
        outbox.append(*[entry] * 20)
    assert caught.value.code is ErrorCode.NO_SPACE
    written = verify_log(small_disk)
    assert written.broken is None
    (small_disk / "filler").unlink()
    outbox.append(entry)
    assert verify_log(small_disk).entries == written.entries + 1
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
    outbox.close()
