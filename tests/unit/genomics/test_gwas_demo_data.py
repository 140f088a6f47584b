"""The demonstration's data sets, and what is laid beside what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from bed_reader import open_bed

from hanse_fabric.errors import HanseError
from hanse_genomics.__main__ import main
from hanse_genomics.compare.plink import plink_program, plink_table
from hanse_genomics.compare.printed import differences
from hanse_genomics.demo import beside as besides
from hanse_genomics.demo.beside import FEDERATED, FIXED, beside
from hanse_genomics.demo.datasets import Dataset, Files, hapmap1, simulated
from hanse_genomics.files import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.results import of_arrays, write, write_tsv


def federated(dataset: Dataset, test: str, folder: Path) -> Path:
    """The table of a study without servers."""
    study = dataset.studies[test]
    cohorts = {
        name: open_cohort(files.prefix, study, files.phenotypes, files.covariates)
        for name, files in dataset.cohorts.items()
    }
    made = rehearse(study, cohorts, folder / "state")
    write(folder, made.results, made.summary)
    write_tsv(of_arrays(made.results, made.summary), folder / "results.tsv.gz")
    return folder / "results.tsv.gz"


def people(files: Files) -> list[str]:
    return Path(f"{files.prefix}.fam").read_text().splitlines()


def test_hapmap1_is_cut_into_cohorts_with_uneven_shares_of_cases(tmp_path: Path) -> None:
    dataset = hapmap1(tmp_path)
    lines = {name: people(files) for name, files in dataset.cohorts.items()}
    assert sorted(line for found in lines.values() for line in found) == sorted(people(dataset.pooled))
    for name, (cases, controls) in dataset.shares.items():
        status = [line.split()[5] for line in lines[name]]
        assert (status.count("2"), status.count("1")) == (cases, controls)


def test_the_cohorts_genotypes_are_the_pools(tmp_path: Path) -> None:
    dataset = hapmap1(tmp_path)

    def genotypes(files: Files) -> dict[str, list[int]]:
        with open_bed(f"{files.prefix}.bed") as bed:
            return dict(zip(bed.fid.tolist(), bed.read(dtype="int8").tolist(), strict=True))

    pooled = genotypes(dataset.pooled)
    for files in dataset.cohorts.values():
        for person, found in genotypes(files).items():
            assert found == pooled[person]


def test_a_dataset_is_the_same_after_json(tmp_path: Path) -> None:
    dataset = hapmap1(tmp_path)
    assert Dataset.of_json(json.loads(json.dumps(dataset.as_json()))) == dataset
    assert dataset.as_json()["schema"] == {
        "kind": "genotypes", "phenotypes": ["pheno"], "covariates": ["Age", "Smoking"],
    }  # fmt: skip


def test_meta_analysis_misses_what_federated_and_pooled_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(besides, "plink_program", lambda: None)  # the same wherever it runs
    dataset = simulated(tmp_path / "data", seed=1)
    found = beside(dataset, "logistic", federated(dataset, "logistic", tmp_path / "f"), tmp_path / "pooled")
    assert found.reference == "Hanse, one cohort"
    assert found.printed.snps == 0
    _, ours = found.analyses[FEDERATED]
    _, meta = found.analyses[FIXED]
    assert ours.significant == ours.found == 6
    assert (ours.missed, ours.false) == (0, 0)
    assert ours.pearson == pytest.approx(1.0, abs=1e-9)
    assert meta.missed >= 2
    assert meta.pearson < 0.8
    json.dumps(found.as_json())


@pytest.mark.skipif(plink_program() is None, reason="PLINK 1.9 is not on the PATH")
@pytest.mark.parametrize("test", ["chi_square", "linear"])
def test_hapmap1_is_printed_as_plink_prints_it(tmp_path: Path, test: str) -> None:
    dataset = hapmap1(tmp_path / "data")
    found = beside(dataset, test, federated(dataset, test, tmp_path / "f"), tmp_path / "pooled")
    assert found.reference == "PLINK 1.9"
    assert (found.printed.snps, found.printed.largest) == (0, 0.0)


@pytest.mark.skipif(plink_program() is None, reason="PLINK 1.9 is not on the PATH")
def test_the_trend_test_is_printed_as_plink_prints_it(tmp_path: Path) -> None:
    dataset = hapmap1(tmp_path / "data")
    study = dataset.studies["chi_square"].model_copy(update={"test": "trend"})
    table = federated(replace(dataset, studies={"trend": study}), "trend", tmp_path / "f")
    theirs = plink_table(str(plink_program()), study, dataset.pooled.prefix, tmp_path / "p")
    assert differences(table, theirs).snps == 0


def test_plink_that_fails_says_why(tmp_path: Path) -> None:
    program = tmp_path / "plink"
    program.write_text("#!/bin/sh\necho 'Error: no such file'\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(HanseError, match="Error: no such file"):
        plink_table(str(program), hapmap1(tmp_path).studies["linear"], tmp_path / "x", tmp_path / "y")


def test_differences_are_counted_by_snp_and_measured(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "b"
    ours.write_text("SNP A1 P OR\nrs1 A 0.5 2\nrs2 A 0.1 3\nrs3 C NA NA\nrs4 C 0.2 1\n")
    theirs.write_text("SNP A1 P X\nrs1 A 0.5 7\nrs2 A 0.2 7\nrs3 C NA 7\nrs9 A 0.1 7\n")
    found = differences(ours, theirs)
    assert (found.snps, found.largest) == (1, 0.5)
    theirs.write_text("SNP A1 P\nrs1 C 0.5\nrs3 C 0.5\n")
    assert differences(ours, theirs).snps == 2
    assert math.isinf(differences(ours, theirs).largest)


def test_the_program_makes_data_publishes_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo-data", str(tmp_path / "data"), "--seed", "3"]) == 0
    datasets = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in datasets] == ["simulated", "hapmap1"]
    hapmap = {**datasets[1], "studies": {"chi_square": datasets[1]["studies"]["chi_square"]}}
    folder = tmp_path / "results" / "hapmap1" / "chi_square"
    federated(Dataset.of_json(hapmap), "chi_square", folder)
    assert main(["publish", str(folder)]) == 0
    (published,) = json.loads(capsys.readouterr().out)
    assert published["files"] == ["results.tsv.gz", "results.parquet", "report.html"]
    assert (published["snps"], published["significant"]) == (102, 0)
    assert all((folder / name).stat().st_size > 0 for name in published["files"])
    (tmp_path / "datasets.json").write_text(json.dumps([hapmap]))
    assert main(["demo-compare", str(tmp_path / "datasets.json"), str(tmp_path / "results")]) == 0
    (compared,) = json.loads(capsys.readouterr().out)
    assert compared["analyses"][FEDERATED][0]["snps"] > 80


def test_the_program_says_what_is_wrong_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", str(tmp_path)]) != 0
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "not-found"
