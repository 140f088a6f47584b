"""The file that tells people what the datapod is doing: soon, and not for every task of a moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hanse_datapod.home.now import Now, read_now
from hanse_fabric.virtual_time import VirtualClock
from unit.datapod.site_actors import task


def test_what_is_over_in_a_moment_is_not_written_and_what_lasts_is(tmp_path: Path) -> None:
    clock, written = VirtualClock(), []

    class Counted(Now):
        def _write(self, body: str) -> None:
            written.append(body)
            super()._write(body)

    async def main() -> None:
        now = Counted(tmp_path, clock)
        keeping = asyncio.create_task(now.keep())
        for number in range(100):
            now.begin(short := task(f"r{number + 1}-train"))
            await clock.sleep(0.002)
            now.end(short)
        await clock.sleep(2.0)
        assert len(written) == 1, "the empty one, of its start"
        now.begin(long := task("r101-train"))
        await clock.sleep(2.0)
        assert [each["step"] for each in read_now(tmp_path)["tasks"]] == ["r101-train"]
        now.progress(long, 0.5, "half")
        await clock.sleep(2.0)
        assert [each["fraction"] for each in read_now(tmp_path)["tasks"]] == [0.5]
        now.end(long)
        await clock.sleep(2.0)
        assert read_now(tmp_path)["tasks"] == []
        keeping.cancel()

    clock.run(main())
