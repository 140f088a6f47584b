"""Files of tasks that are under way beside each other: one that begins leaves the others' alone."""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.home.folders import TaskFolders
from hanse_fabric.store.files import whole_file
from unit.datapod.study_actors import RUN, masked_step


def test_a_step_that_begins_leaves_the_unfinished_file_of_one_that_is_under_way_alone(tmp_path: Path) -> None:
    folders = TaskFolders(tmp_path)
    first, second = masked_step("c0001-counts"), masked_step("c0002-counts")
    folders.prepare(first)
    written = folders.worker_output(first)
    with whole_file(written) as file:
        file.write(b"counts")
        folders.prepare(second)
    assert written.read_bytes() == b"counts"


def test_what_a_crash_has_left_of_a_plain_update_is_removed(tmp_path: Path) -> None:
    crashed, folders = TaskFolders(tmp_path), TaskFolders(tmp_path)
    first, second = masked_step("c0001-counts"), masked_step("c0002-counts")
    crashed.prepare(first)
    written = crashed.worker_output(first)
    written.write_bytes(b"counts")
    unfinished = written.with_name(f".{written.name}.0123456789ab.partial")
    unfinished.write_bytes(b"cou")
    folders.prepare(second)
    assert not written.exists()
    assert not unfinished.exists()


def test_the_end_of_a_study_removes_unfinished_files_of_its_run(tmp_path: Path) -> None:
    folders = TaskFolders(tmp_path)
    step = masked_step()
    assert step.run == RUN
    folders.prepare(step)
    output = folders.output(step)
    unfinished = output.with_name(f".{output.name}.0123456789ab.partial")
    unfinished.write_bytes(b"")
    folders.forget(step.run)
    assert not unfinished.exists()
