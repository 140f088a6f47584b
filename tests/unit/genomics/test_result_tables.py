"""The table and the Parquet file of a study's results."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hanse_fabric.errors import HanseError
from hanse_genomics.compare import read_associations
from hanse_genomics.reasons import Reason
from hanse_genomics.results import Results, read, tsv, write, write_parquet, write_tsv
from hanse_genomics.results.table import summary_of
from made_results import made_results

NAN = float("nan")


def rows(results: Results, folder: Path) -> list[list[str]]:
    write_tsv(results, folder / "results.tsv.gz")
    text = gzip.decompress((folder / "results.tsv.gz").read_bytes()).decode()
    return [line.split("\t") for line in text.splitlines()]


def chi_square() -> Results:
    return made_results(
        "chi_square",
        minor=np.array([0, 1, 0, 0], np.uint8),
        reason=np.array([0, 0, Reason.MONOMORPHIC, 0], np.uint8),
        f_a=[0.1818, 0.49925, 0.0, 0.5],
        f_u=[0.25, 0.09211, 0.0, 0.5],
        chisq=[0.74291, 0.8742, NAN, 2e6],
        odds_ratio=[2 / 3, 0.4694, NAN, NAN],
        p=[0.38873, 0.3498, NAN, 0.0],
        log10_p=[np.log10(0.38873), np.log10(0.3498), NAN, -4321.5],
        se=[0.5, 0.25, NAN, NAN],
        counts=np.arange(16).reshape(4, 4),
    )


def test_the_allelic_test_has_the_columns_of_assoc(tmp_path: Path) -> None:
    found = rows(chi_square(), tmp_path)
    assert found[0] == ["CHR", "SNP", "BP", "A1", "F_A", "F_U", "A2", "CHISQ", "P", "OR", "SE", "REASON"]
    assert found[1] == ["1", "rs0", "1000", "A", "0.1818", "0.25", "G", "0.7429", "0.3887", "0.6667", "0.5", "."]
    assert found[2][3:7] == ["G", "0.4992", "0.09211", "A"]
    assert found[3][4:] == ["0", "0", "G", "NA", "NA", "NA", "NA", "MONOMORPHIC"]
    assert found[4][7:10] == ["2e+06", "3.162e-4322", "NA"]


def test_the_trend_test_has_the_columns_of_model(tmp_path: Path) -> None:
    results = made_results("trend", 1, chisq=[0.6803], counts=np.array([[8, 36, 19, 57]]))
    header, row = rows(results, tmp_path)
    assert header == ["CHR", "SNP", "A1", "A2", "TEST", "AFF", "UNAFF", "CHISQ", "DF", "P", "BP", "REASON"]
    assert row == ["1", "rs0", "A", "G", "TREND", "8/36", "19/57", "0.6803", "1", "0.5", "1000", "."]


@pytest.mark.parametrize(("test", "more"), [("linear", []), ("logistic", ["OR"])])
def test_regressions_have_the_columns_of_linear_and_logistic_beta(tmp_path: Path, test: str, more: list[str]) -> None:
    results = made_results(
        test, 2, nmiss=[60, 59], beta=[np.log(2.0), NAN], se=[0.25, NAN], stat=[2.772589, NAN], p=[0.00556, NAN],
        log10_p=[np.log10(0.00556), NAN], reason=np.array([0, Reason.COLLINEAR], np.uint8),
    )  # fmt: skip
    header, first, second = rows(results, tmp_path)
    assert header == ["CHR", "SNP", "BP", "A1", "TEST", "NMISS", "BETA", "STAT", "P", "SE", *more, "REASON"]
    assert first == [
        "1", "rs0", "1000", "A", "ADD", "60", "0.6931", "2.773", "0.00556", "0.25", *["2" for _ in more], ".",
    ]  # fmt: skip
    assert second[5:] == ["59", "NA", "NA", "NA", "NA", *["NA" for _ in more], "COLLINEAR"]


def test_the_same_results_are_the_same_bytes_however_they_are_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tsv(chi_square(), tmp_path / "a.gz")
    monkeypatch.setattr(tsv, "BLOCK", 3)
    assert rows(chi_square(), tmp_path)[4][1] == "rs3"
    monkeypatch.undo()
    write_tsv(chi_square(), tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_parquet_has_all_digits_null_for_what_is_not_known_and_the_reason_in_words(tmp_path: Path) -> None:
    write_parquet(chi_square(), tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet").to_pydict()
    assert table["snp"] == ["rs0", "rs1", "rs2", "rs3"]
    assert table["a1"] == ["A", "G", "A", "A"]
    assert table["odds_ratio"] == [2 / 3, 0.4694, None, None]
    assert table["log10_p"][3] == -4321.5
    assert table["control_a2"] == [3, 7, 11, 15]
    assert table["reason"][:2] == [None, None]
    assert table["reason"][2].startswith("monomorphic")


def test_a_study_without_snps_has_a_header(tmp_path: Path) -> None:
    results = made_results("linear", 0)
    assert len(rows(results, tmp_path)) == 1
    write_parquet(results, tmp_path / "r.parquet")
    assert pq.read_table(tmp_path / "r.parquet").num_rows == 0


def test_a_written_table_of_associations_is_read_back(tmp_path: Path) -> None:
    rows(chi_square(), tmp_path)
    found = read_associations(tmp_path / "results.tsv.gz")
    assert found.snp == ["rs0", "rs1", "rs2", "rs3"]
    assert found.log10_p[3] == pytest.approx(-4321.5, abs=1e-4)
    assert found.se[0] == 0.5
    assert np.isnan(found.log10_p[2])


def test_a_folder_of_results_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = chi_square()
    write(tmp_path / "out", {**made.snps.arrays(), **made.arrays}, made.summary)
    found = read(tmp_path / "out")
    assert found.study == made.study
    assert found.alleles() == made.alleles()
    np.testing.assert_array_equal(found.column("f_a"), made.column("f_a"))


def test_a_folder_without_results_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="no such file") as caught:
        read(tmp_path)
    assert "hanse gwas run" in caught.value.hint


def test_results_of_a_wrong_form_are_refused() -> None:
    with pytest.raises(HanseError, match="p has 3"):
        made_results("linear", 4, p=[0.1, 0.2, 0.3])
    with pytest.raises(HanseError, match="test"):
        made_results("fishing")
    with pytest.raises(HanseError, match="JSON"):
        summary_of({"json": np.frombuffer(b"{", np.uint8)})
