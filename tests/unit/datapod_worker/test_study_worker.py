"""The worker for studies: real PLINK files in a process without torch."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.port import STUDY_KINDS, TRAINING_KINDS, WorkOutcome, WorkRequest
from hanse_datapod.worker.server.studies import StudyServer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.site import SiteStudy
from hanse_schemas.schema import ArraySchema, DataSchema, GenotypesSchema, OpenSchema
from hanse_schemas.study import Study
from own_worker import OwnWorker

COHORT = Path(__file__).parents[2] / "data" / "hapmap1" / "client1"


def silent(_fraction: float, _text: str) -> None:
    return None


@pytest.fixture
def files(tmp_path: Path) -> DataSettings:
    return copied(tmp_path)


def copied(folder: Path) -> DataSettings:
    """A copy of the first hapmap1 cohort."""
    prefix = folder / "data" / "ward"
    prefix.parent.mkdir()
    for ending in ("bed", "bim", "fam", "cov"):
        shutil.copy(COHORT / f"hapmap1_100_1.{ending}", f"{prefix}.{ending}")
    shutil.copy(COHORT / "hapmap1_100_1_quant.pheno", f"{prefix}.pheno")
    return DataSettings(
        train=prefix, phenotypes=prefix.with_suffix(".pheno"), covariates=prefix.with_suffix(".cov")
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(shared: Path) -> AsyncIterator[OwnWorker]:
    """For the tests that leave it running, and ask for nothing but its data outside of `shared`."""
    made = OwnWorker(copied(shared))
    yield made
    await made.close()


left_running = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
async def worker(files: DataSettings) -> AsyncIterator[OwnWorker]:
    made = OwnWorker(files)
    yield made
    await made.close()


def request(folder: Path, step: str = "open", *, study: Study | None = None, **other: Any) -> WorkRequest:
    config = {"study": (study or Study(test="chi_square")).model_dump(mode="json"), "step": step, "settings": {}}
    body: dict[str, Any] = {"time_limit": 60.0} | other
    return WorkRequest(TaskKind.STUDY, config, 0, 0, None, folder / "arrays", folder / "state", **body)


def shorten(path: Path, number: int) -> None:
    """Take a line's last words away."""
    lines = path.read_text().splitlines()
    lines[number - 1] = "1 rs_short 0"
    path.write_text("\n".join(lines) + "\n")


def people_in(fam: Path) -> int:
    return len(fam.read_text().splitlines())


def arrays_of(outcome: WorkOutcome) -> dict[str, np.ndarray]:
    assert outcome.update is not None
    return read_tensors(outcome.update)[1]


async def test_a_step_is_computed_and_again_after_its_process_was_killed(worker: OwnWorker, tmp_path: Path) -> None:
    first = await worker.work(request(tmp_path), silent)
    before = {name: array.copy() for name, array in arrays_of(first).items()}
    assert first.examples > 0
    assert len(before["position"]) == len((COHORT / "hapmap1_100_1.bim").read_text().splitlines())
    killed = worker.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    while worker.pid == killed:  # what it has started ends a little later, and may answer once more
        with suppress(HanseError):
            await worker.work(request(tmp_path), silent)
    after = arrays_of(await worker.work(request(tmp_path), silent))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


async def test_resting_keeps_the_process_alive(worker: OwnWorker, tmp_path: Path) -> None:
    await worker.rest()
    assert worker.pid is None
    await worker.work(request(tmp_path), silent)
    pid = worker.pid
    await worker.rest()
    assert (await worker.work(request(tmp_path), silent)).update is not None
    assert worker.pid == pid


def test_resting_frees_what_was_read_of_a_study(files: DataSettings, tmp_path: Path) -> None:
    def studies() -> int:
        """How many studies of this test are in memory; those of other tests may be collected at any time."""
        return sum(type(found) is SiteStudy and found.state.is_relative_to(tmp_path) for found in gc.get_objects())

    server, asked = StudyServer(lambda _: None), request(tmp_path)
    body = {"data": files.model_dump(mode="json"), "config": asked.config, "output": str(asked.output), "extras": {}}
    for _ in range(2):
        server.do(body | {"operation": "work", "state": str(asked.state)})
    assert studies() == 1
    assert server.do(body | {"operation": "rest"}) == {}
    assert studies() == 0


async def test_a_step_that_is_cancelled_is_stopped(worker: OwnWorker, tmp_path: Path) -> None:
    await worker.start()
    pid = worker.pid
    assert pid is not None
    asked = asyncio.create_task(worker.work(request(tmp_path), silent))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert (await worker.work(request(tmp_path), silent)).update is not None


@left_running
async def test_a_step_that_this_release_does_not_have_is_refused(standing: OwnWorker, shared: Path) -> None:
    with pytest.raises(HanseError, match="step of_the_future: this datapod has no such step") as raised:
        await standing.work(request(shared, "of_the_future"), silent)
    assert raised.value.code is ErrorCode.UNKNOWN_SCHEMA


@left_running
async def test_an_exception_inside_a_step_is_told_by_its_type_alone(standing: OwnWorker, shared: Path) -> None:
    stranger = shared / "stranger"
    stranger.write_bytes(b"12345678 words of a patient")
    with pytest.raises(HanseError) as raised:
        await standing.work(request(shared, extras={"snps": stranger}), silent)
    assert "patient" not in raised.value.message
    assert (await standing.work(request(shared), silent)).update is not None


@left_running
@pytest.mark.parametrize(
    ("schema", "code", "said"),
    [
        (GenotypesSchema(phenotypes=("nope",)), ErrorCode.INVALID_INPUT, "ward.pheno, line 1: has no column nope"),
        (GenotypesSchema(covariates=("nope",)), ErrorCode.INVALID_INPUT, "ward.cov, line 1: has no column nope"),
        (ArraySchema(shape=(2,)), ErrorCode.SCHEMA_MISMATCH, "genotypes, the project's schema is of kind array"),
    ],
)
async def test_files_that_are_not_what_the_project_declares_are_named(
    standing: OwnWorker, schema: DataSchema, code: ErrorCode, said: str
) -> None:
    with pytest.raises(HanseError) as raised:
        await standing.check_data(schema)
    assert raised.value.code is code
    assert said in raised.value.message


@pytest.mark.parametrize("ending", ["bed", "bim", "fam", "cov", "pheno"])
def test_a_file_that_changes_during_a_study_ends_it_even_after_a_restart(
    files: DataSettings, tmp_path: Path, ending: str
) -> None:
    asked = request(tmp_path)
    body = {"operation": "work", "data": files.model_dump(mode="json"), "config": asked.config, "extras": {}}
    body |= {"output": str(asked.output), "state": str(asked.state)}
    assert StudyServer(lambda _: None).do(body)["examples"]
    changed = files.train.with_suffix(f".{ending}")
    os.utime(changed, ns=(1, 1))
    with pytest.raises(HanseError, match=rf"^{changed.name}: changed while the study ran") as raised:
        StudyServer(lambda _: None).do(body)
    assert raised.value.code is ErrorCode.CONFLICT
    assert StudyServer(lambda _: None).do(body | {"state": str(tmp_path / "another study")})["examples"]


async def test_a_wrong_line_is_named_by_file_and_number(worker: OwnWorker, files: DataSettings) -> None:
    shorten(Path(f"{files.prefix}.bim"), 5)
    with pytest.raises(HanseError, match=r"ward\.bim, line 5"):
        await worker.check_data(OpenSchema())


async def test_a_column_is_refused_as_missing_when_no_file_was_given_for_it(files: DataSettings) -> None:
    alone = OwnWorker(DataSettings(train=files.train))
    try:
        with pytest.raises(HanseError, match="--covariates FILE") as raised:
            await alone.check_data(GenotypesSchema(covariates=("AGE",)))
        assert raised.value.code is ErrorCode.SCHEMA_MISMATCH
        found = await alone.check_data(GenotypesSchema())
        assert (found.examples, found.test_examples) == (
            len((COHORT / "hapmap1_100_1.fam").read_text().splitlines()),
            0,
        )
    finally:
        await alone.close()


async def test_memory_beyond_the_limit_ends_the_step(worker: OwnWorker, tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"the study used .* MiB of memory") as raised:
        await worker.work(request(tmp_path, memory_limit=1 << 20), silent)
    assert raised.value.code is ErrorCode.TOO_LARGE


def test_the_process_for_studies_loads_no_torch_and_no_pandas() -> None:
    said = (
        "import sys; import hanse_datapod.worker.server.studies as s; s.StudyServer(print); "
        "print(sorted({'torch', 'pandas', 'pyarrow', 'scipy.stats', 'nats'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "genotypes"), [("ward", True), ("ward.bed", True), ("ward.npz", False)])
def test_genotypes_are_recognized_by_the_endings_of_files(files: DataSettings, name: str, genotypes: bool) -> None:
    data = DataSettings(train=files.prefix.parent / name)
    assert data.is_genotypes is genotypes
    if genotypes:
        assert data.prefix == files.prefix
        assert data.kind_of(files.prefix.parent / name) == "plink"


@pytest.mark.usefixtures("started_anew")
async def test_a_datapod_starts_only_the_processes_that_its_data_need(files: DataSettings) -> None:
    shared, before = SharedWorker(participants=2), set(psutil.Process().children())
    one, other = shared.participant(files), shared.participant(files)
    assert one.kinds == other.kinds == STUDY_KINDS
    await shared.start()
    try:
        children = set(psutil.Process().children()) - before
        assert [child.cmdline()[-1] for child in children if child.cmdline()[-1] == "--studies"] == ["--studies"]
        assert shared.participant(DataSettings(train=Path("x.csv"))).kinds == TRAINING_KINDS
    finally:
        await shared.close()
