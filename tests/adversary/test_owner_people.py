"""An owner who makes two studies of the same cohorts, by two columns that say the same of all people but one.

The difference of the two tables is that person's genotypes. The works are different; one site's people are, by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from adversary.in_memory import tmp_path
from adversary.test_owner_studies import Arrays
from clocks import in_virtual_time
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.home import works
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.clock import Clock
from hanse_fabric.messages import HiddenFailure
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.schema import GenotypesSchema
from simulation.cohorts import COHORTS, Files, study_job
from simulation.in_threads import ThreadedProcess
from simulation.league import League
from simulation.stories import hub_of

__all__ = ["tmp_path"]
TARGET, PERSON = "south", 3
SCHEMA = GenotypesSchema(kind="genotypes", phenotypes=("ILL",))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of whom one person has a phenotype in the .fam file, and none in the column ILL, which is the same else."""
    made = Files.written(tmp_path_factory.mktemp("cohorts"))
    for name, prefix in made.prefixes.items():
        people = [line.split() for line in Path(f"{prefix}.fam").read_text().splitlines()]
        if name == TARGET:
            people[PERSON][5] = "NA"
        rows = [f"{person[0]} {person[1]} {person[5]}" for person in people]
        phenotypes(prefix).write_text("\n".join(["FID IID ILL", *rows]) + "\n")
    return made


def phenotypes(prefix: Path) -> Path:
    return Path(f"{prefix}.ill")


async def studied(
    made: League, run: str, phenotype: str | None, *, mode: str = "compensator"
) -> tuple[Arrays | None, str]:
    """The results of a study; or why there are none."""
    await made.submit(run, **study_job(mode, test="chi_square", covariates=[], phenotype=phenotype))
    record = await made.ended(run)
    if record.state != "completed":
        return None, record.reason
    return decode_tensors(made.store.get(str(record.outputs["results"]["key"]), limit=1 << 24))[1], ""


async def by_both_columns(clock: VirtualClock, folder: Path, files: Files) -> tuple[Arrays, Arrays | None, str]:
    """The results of the study of all people, and of all but one; where that was refused, why."""

    def worker(clock: Clock, number: int) -> ProcessWorker:
        prefix = files.prefixes[COHORTS[number]]
        settings = DataSettings(train=prefix, kind="plink", phenotypes=phenotypes(prefix))
        return ProcessWorker(settings, ThreadedProcess(clock, 0.1, studies=True))

    with threadpool_limits(1):
        async with hub_of(clock, folder, *COHORTS, worker=worker, schema=SCHEMA) as made:
            masking = made.policy.masking.model_copy(update={"required": True})
            made.policy = made.policy.model_copy(update={"masking": masking})
            for name in COHORTS:
                await made.restart(name)
            whole, why = await studied(made, "run000000001", None)
            assert whole is not None, why
            rest, why = await studied(made, "run000000002", "ILL")
            return whole, rest, why


@in_virtual_time
async def test_a_study_is_not_made_again_of_all_people_but_one(
    clock: VirtualClock, tmp_path: Path, files: Files
) -> None:
    _, rest, why = await by_both_columns(clock, tmp_path, files)
    assert rest is None
    assert f"{TARGET} refused ({HiddenFailure.UNFIT.text})" in why


@in_virtual_time
@pytest.mark.control("test_a_study_is_not_made_again_of_all_people_but_one")
async def test_control_where_nobody_compares_the_people_two_studies_tell_one_persons_genotypes(
    clock: VirtualClock, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "check_changed", lambda *_: None)
    monkeypatch.setattr(works, "check_studied", lambda *_: None)
    whole, rest, why = await by_both_columns(clock, tmp_path, files)
    assert rest is not None, why
    same = whole["minor"] == rest["minor"]
    assert same.sum() > 250
    copies = (whole["counts"] - rest["counts"]).reshape(
        -1, 2, 2
    )  # of cases and controls, the minor allele and the other
    read, true = copies.sum(axis=1), genotypes(files)
    assert np.array_equal(read.sum(axis=1), np.where(true == MISSING, 0, 2))
    assert np.array_equal((read[:, 0] == 1)[same], (true == HETEROZYGOUS)[same])


MISSING, HETEROZYGOUS = 1, 2


def genotypes(files: Files) -> Any:
    """The person's, as two bits of each SNP in the file."""
    data = np.frombuffer(Path(f"{files.prefixes[TARGET]}.bed").read_bytes()[3:], np.uint8)
    snps = len(Path(f"{files.prefixes[TARGET]}.bim").read_text().splitlines())
    return data.reshape(snps, -1)[:, PERSON // 4] >> 2 * (PERSON % 4) & 3
