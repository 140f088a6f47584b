"""A cohort's files: what is read of them, and that every fault is refused with file, line, value and expectation."""

from __future__ import annotations

import os
from pathlib import Path

import bed_reader
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.files import Cohort, Matched, open_cohort
from hanse_genomics.files.lines import read_table
from hanse_genomics.genotypes import count, dosages, group
from hanse_schemas.study import Study
from plink_files import random_copies, write_plink

HAPMAP = Path(__file__).parents[2] / "data" / "hapmap1"
CHI_SQUARE = Study(test="chi_square")
LINEAR = Study(test="linear", phenotype="pheno")
N = 12


@pytest.fixture
def prefix(tmp_path):
    return write_plink(tmp_path / "site", random_copies(6, N))


def _refusal(prefix, study=CHI_SQUARE, **files) -> HanseError:
    with pytest.raises(HanseError) as caught:
        open_cohort(prefix, study, **files)
    return caught.value


def _with_phenotypes(prefix: Path, values) -> Path:
    path = Path(f"{prefix}.pheno")
    path.write_text("FID IID pheno\n" + "".join(f"F{at} I{at} {value}\n" for at, value in enumerate(values)))
    return path


# What is read


def test_hapmap_is_read_as_bed_reader_reads_it():
    folder = HAPMAP / "whole"
    study = Study(test="linear", phenotype="pheno", covariates=("Smoking", "Age"), sex=True)
    cohort = open_cohort(folder / "hapmap1_100", study, folder / "hapmap1_100_quant.pheno", folder / "hapmap1_100.cov")
    with bed_reader.open_bed(folder / "hapmap1_100.bed") as oracle:
        read = oracle.read(dtype=np.float64).T
        assert [family for family, _ in cohort.ids] == oracle.fid.tolist()
        assert [person for _, person in cohort.ids] == oracle.iid.tolist()
        assert cohort.sex.tolist() == oracle.sex.tolist()
        assert cohort.snps.chromosome == oracle.chromosome.tolist()
        assert cohort.snps.name == oracle.sid.tolist()
        assert cohort.snps.position.tolist() == oracle.bp_position.tolist()
        assert cohort.snps.a1 == oracle.allele_1.tolist()
        assert cohort.snps.a2 == oracle.allele_2.tolist()
    np.testing.assert_array_equal(dosages(cohort.packed(slice(None)), cohort.samples), np.nan_to_num(read))
    assert cohort.samples == 60
    assert cohort.founder.all()
    assert cohort.covariate_names == ("Smoking", "Age", "SEX")
    assert cohort.covariates[0].tolist() == [1, 74, 0]
    assert cohort.phenotype[0] == pytest.approx(6.81301)


def test_phenotypes_and_covariates_are_aligned_by_person_never_by_order(tmp_path):
    folder = HAPMAP / "client1"
    study = Study(test="logistic", phenotype="pheno", covariates=("Age", "Smoking"))
    straight = open_cohort(
        folder / "hapmap1_100_1", study, folder / "hapmap1_100_1.pheno", folder / "hapmap1_100_1.cov"
    )
    shuffled = {}
    for ending in ("pheno", "cov"):
        header, *lines = (folder / f"hapmap1_100_1.{ending}").read_text().split("\n")
        np.random.default_rng(1).shuffle(lines)
        shuffled[ending] = tmp_path / ending
        # The file also names a person who is no sample, and has Windows line ends.
        people = [line for line in lines if line.strip()]
        columns = " ".join("7" for _ in header.split()[2:])
        shuffled[ending].write_text("\r\n".join([header, f"NOBODY 1 {columns}", *people]))
    again = open_cohort(folder / "hapmap1_100_1", study, shuffled["pheno"], shuffled["cov"])
    np.testing.assert_array_equal(straight.phenotype, again.phenotype)
    np.testing.assert_array_equal(straight.covariates, again.covariates)


def test_missing_codes_are_minus_nine_na_and_nan_and_people_who_are_not_in_the_file(prefix):
    values = ["-9", "NA", "nan", "-9.0", "0", "1e-3", "2.5", "-8", "3", "4"]  # two people are not there
    cohort = open_cohort(prefix, LINEAR, _with_phenotypes(prefix, values))
    np.testing.assert_array_equal(cohort.phenotype, [np.nan] * 4 + [0, 1e-3, 2.5, -8, 3, 4] + [np.nan] * 2)


def test_cases_are_two_controls_one_and_zero_is_missing(tmp_path):
    people = [f"F{at} I{at} 0 0 1 {code}" for at, code in enumerate(["1", "2", "0", "-9", "NA", "2"])]
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 6), people=people), CHI_SQUARE)
    np.testing.assert_array_equal(cohort.phenotype, [0, 1, np.nan, np.nan, np.nan, 1])


@pytest.mark.parametrize("only", ["1", "2"])
def test_a_cohort_of_controls_or_of_cases_alone_takes_part(tmp_path, only):
    people = [f"F{at} I{at} 0 0 1 {only}" for at in range(5)]
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 5), people=people), CHI_SQUARE)
    assert (cohort.phenotype == int(only) - 1).all()


def test_samples_of_unknown_sex_have_no_phenotype_as_in_plink(tmp_path):
    people = [f"F{at} I{at} 0 0 {sex} {1 + at % 2}" for at, sex in enumerate(["1", "2", "0", "-9", "3", "1"])]
    study = Study(test="logistic", sex=True)
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 6), people=people), study)
    assert cohort.sex.tolist() == [1, 2, 0, 0, 0, 1]
    assert cohort.unsexed == 3
    np.testing.assert_array_equal(cohort.phenotype, [0, 1, np.nan, np.nan, np.nan, 1])
    np.testing.assert_array_equal(cohort.covariates[:, 0], [1, 0, np.nan, np.nan, np.nan, 1])


def test_founders_are_those_without_parents(tmp_path):
    people = ["F A 0 0 1 1", "F B 0 0 2 2", "F C A B 1 1", "F D A 0 2 2"]
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 4), people=people), CHI_SQUARE)
    assert cohort.founder.tolist() == [True, True, False, False]


def test_chromosomes_are_named_as_plink_names_them(tmp_path):
    given = ["0", "1", "chr2", "CHR22", "23", "X", "24", "chrY", "25", "XY", "26", "chrM", "MT"]
    snps = [(name, at, f"rs{at}", "A", ".") for at, name in enumerate(given)]
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(len(given), 4), snps=snps), CHI_SQUARE)
    assert cohort.snps.chromosome == ["0", "1", "2", "22", "X", "X", "Y", "Y", "XY", "XY", "MT", "MT", "MT"]
    assert set(cohort.snps.a2) == {"0"}


def test_tabs_spaces_empty_lines_and_a_missing_last_line_end_are_all_one(prefix):
    plain = open_cohort(prefix, CHI_SQUARE)
    path = Path(f"{prefix}.bim")
    path.write_text("\n" + path.read_text().replace("\t", "  ").replace("\n", " \r\n\n").rstrip())
    again = open_cohort(prefix, CHI_SQUARE)
    assert again.snps.name == plain.snps.name
    assert again.snps.position.tolist() == plain.snps.position.tolist()


def test_names_may_be_any_utf8(tmp_path):
    people = ["Müller Jörg 0 0 1 1", "Ł Ø 0 0 2 2"]
    cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 2), people=people), CHI_SQUARE)
    assert cohort.ids == [("Müller", "Jörg"), ("Ł", "Ø")]


def test_rows_are_read_in_the_order_asked_for(prefix):
    cohort = open_cohort(prefix, CHI_SQUARE)
    whole = cohort.packed(slice(None))
    rows = np.array([5, 0, 1, 2, 2, 4], dtype=np.int64)
    np.testing.assert_array_equal(cohort.packed(rows), whole[rows])
    np.testing.assert_array_equal(cohort.packed(slice(1, 5, 2)), whole[1:5:2])
    assert cohort.packed(slice(3, 3)).shape == (0, 3)
    with pytest.raises(IndexError):
        cohort.packed(np.array([6], dtype=np.int64))


def test_memory_does_not_grow_with_the_length_of_the_file(tmp_path):
    import tracemalloc

    prefix = write_plink(tmp_path / "long", random_copies(4, 4000))
    snps = 8000
    with Path(f"{prefix}.bed").open("r+b") as bed:
        bed.truncate(3 + 1000 * snps)
    Path(f"{prefix}.bim").write_text("".join(f"1 rs{at} 0 {at + 1} A G\n" for at in range(snps)))
    cohort = open_cohort(prefix, CHI_SQUARE)
    tracemalloc.start()
    try:
        for start in range(0, snps, 400):
            cohort.packed(slice(start, start + 400))
        everything = Matched(cohort, np.arange(snps), np.ones(snps, bool), np.zeros(snps, bool)).packed(0, snps)
        assert count(everything, group(cohort.sex == 1))[4:, 0, 0].min() == 2000
        assert tracemalloc.get_traced_memory()[1] < 3_500_000
    finally:
        tracemalloc.stop()


# The failure table: .bed


def _bed(prefix: Path, change) -> None:
    path = Path(f"{prefix}.bed")
    path.write_bytes(change(path.read_bytes()))


def test_a_truncated_bed_file_is_refused_with_both_sizes(prefix):
    _bed(prefix, lambda data: data[:-2])
    error = _refusal(prefix)
    assert error.code is ErrorCode.INVALID_INPUT
    assert "site.bed: is cut off for the samples of the .fam file and the 6 SNPs" in str(error)
    assert error.found == "19 bytes, 21 for 12 samples"


def test_a_bed_file_of_more_snps_than_the_bim_file_is_refused(prefix):
    _bed(prefix, lambda data: data + b"\x00")
    error = _refusal(prefix)
    assert "is too long" in str(error)
    assert "22 bytes, 21 for" in error.found


def test_wrong_magic_bytes_are_refused_with_the_bytes_that_were_found(prefix):
    _bed(prefix, lambda data: b"\x1f\x8b" + data[2:])
    error = _refusal(prefix)
    assert "site.bed: expected bytes 6c 1b at its begin" in str(error)
    assert error.found == "1f 8b"
    _bed(prefix, lambda _: b"")
    assert _refusal(prefix).found == ""


def test_an_individual_major_bed_file_is_refused_with_the_way_out(prefix):
    _bed(prefix, lambda data: data[:2] + b"\x00" + data[3:])
    error = _refusal(prefix)
    assert "is individual-major (third byte 00), expected SNP-major (01)" in error.message
    assert "--make-bed" in error.hint
    _bed(prefix, lambda data: data[:2] + b"\x07" + data[3:])
    assert "expected 01, SNP-major, as its third byte" in str(_refusal(prefix))
    assert _refusal(prefix).found == "07"


def test_a_fam_file_that_has_lost_a_line_is_refused_though_the_bytes_are_as_many(prefix):
    path = Path(f"{prefix}.fam")
    path.write_text(path.read_text().split("\n", 1)[1])
    error = _refusal(prefix)
    assert error.code is ErrorCode.INVALID_INPUT
    assert "site.bed: has genotypes behind the last sample of the .fam file" in str(error)
    assert error.found == f"{N - 1} samples"


def test_genotypes_of_nobody_are_refused_when_their_snp_is_read(tmp_path):
    """Too far behind the begin of the file to be seen when it is opened."""
    prefix = write_plink(tmp_path / "site", random_copies(300, 5, seed=1))
    path = Path(f"{prefix}.bed")
    path.write_bytes(path.read_bytes()[:-1] + b"\xfc")
    cohort = open_cohort(prefix, CHI_SQUARE)
    assert len(cohort.packed(slice(0, 299))) == 299
    with pytest.raises(HanseError, match="behind the last sample"):
        cohort.packed(slice(290, 300))


def test_a_header_in_a_fam_file_is_told_as_what_it_is(prefix):
    path = Path(f"{prefix}.fam")
    path.write_text("#FID IID PAT MAT SEX PHENO1\n" + path.read_text())
    error = _refusal(prefix)
    assert "site.fam, line 1: expected the first sample: a .fam file has no header" in str(error)
    assert error.found == "#FID IID PAT MAT SEX PHENO1"


def test_the_mark_of_utf8_at_a_files_begin_is_no_part_of_it(prefix):
    expected = open_cohort(prefix, CHI_SQUARE)
    for ending in ("fam", "bim"):
        path = Path(f"{prefix}.{ending}")
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = open_cohort(prefix, CHI_SQUARE)
    assert found.ids == expected.ids
    assert found.snps.chromosome == expected.snps.chromosome
    phenotypes = _with_phenotypes(prefix, [0.5 * at for at in range(N)])
    phenotypes.write_bytes(b"\xef\xbb\xbf" + phenotypes.read_bytes())
    assert open_cohort(prefix, LINEAR, phenotypes).phenotype[3] == 1.5


def test_a_bed_file_that_changes_while_the_study_runs_is_noticed(prefix):
    cohort = open_cohort(prefix, CHI_SQUARE)
    os.utime(f"{prefix}.bed", ns=(1, 1))
    with pytest.raises(HanseError, match="changed while the study ran") as caught:
        cohort.packed(slice(0, 1))
    assert caught.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize("ending", ["bed", "bim", "fam"])
def test_a_file_that_is_not_there_is_named(prefix, ending):
    Path(f"{prefix}.{ending}").unlink()
    error = _refusal(prefix)
    assert error.code is ErrorCode.NOT_FOUND
    assert error.message == f"site.{ending}: there is no such file"


# The failure table: text


@pytest.mark.parametrize(
    ("ending", "line", "put", "said", "found"),
    [
        ("bim", 3, "1 rs2 0 3 A", "site.bim, line 3: 5 columns, expected 6: chromosome, name", ""),
        ("bim", 3, "1 rs2 0 3 A G T", "site.bim, line 3: 7 columns, expected 6", ""),
        ("bim", 2, "HLA rs1 0 2 A G", "site.bim, line 2: the chromosome: expected 0 to 26, X, Y, XY or MT", "HLA"),
        ("bim", 4, "1 rs3 0 1e6 A G", "site.bim, line 4: the position: expected a whole number", "1e6"),
        ("bim", 4, "1 rs3 0 1_0 A G", "site.bim, line 4: the position: expected a whole number", "1_0"),
        ("bim", 4, "1 rs3 0 4294967296 A G", "site.bim, line 4: the position: expected at most", "4294967296"),
        ("bim", 4, f"1 rs3 0 {'9' * 25} A G", "site.bim, line 4: the position: expected at most", "9" * 25),
        ("bim", 6, "1 rs5 0 6 G G", "site.bim, line 6: A2: expected another allele than A1", "G"),
        ("bim", 1, "1 rs0 0 1 A \x00", "site.bim, line 1: expected text", "byte 0x00"),
        ("fam", 5, "F4 I4 0 0 1", "site.fam, line 5: 5 columns, expected 6: family id", ""),
        ("fam", 7, "F2 I2 0 0 1 1", "line 7: the person (FID, IID): expected persons that differ: line 3", "F2 I2"),
        ("fam", 2, "F1 I1 0 0 1 yes", "site.fam, line 2: the phenotype: expected a number, or -9, NA or nan", "yes"),
        ("fam", 2, "F1 I1 0 0 1 inf", "site.fam, line 2: the phenotype: expected a number", "inf"),
        ("fam", 2, "F1 I1 0 0 1 3", "column 6): expected 1 (control) and 2 (case)", "1, 2, 3"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_file_line_and_expectation_and_the_site_sees_the_value(
    prefix, ending, line, put, said, found
):
    path = Path(f"{prefix}.{ending}")
    lines = path.read_text().split("\n")
    lines[line - 1] = put
    path.write_text("\n".join(lines))
    error = _refusal(prefix)
    assert error.code is ErrorCode.INVALID_INPUT
    assert said in str(error)
    assert error.found == found


def test_a_short_line_is_refused_although_the_next_one_is_as_much_too_long(prefix):
    path = Path(f"{prefix}.bim")
    lines = path.read_text().split("\n")
    lines[1], lines[2] = "1 rs1 0 2 A", "1 rs2 0 3 A G T"
    path.write_text("\n".join(lines))
    assert "line 2: 5 columns" in str(_refusal(prefix))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab \t\n", max_size=24), st.integers(1, 3))
@example("a\tb\nb a\n", 2)
@example("\na b", 1)
@example("a\n\tb", 2)
def test_a_table_has_its_lines_words_however_they_are_laid_out(tmp_path_factory, text, width):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text)
    lines = [(number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.split()]
    wrong = next((number for number, words in lines if len(words) != width), None)
    if wrong is not None:
        with pytest.raises(HanseError, match=f"line {wrong}:"):
            read_table(path, width, "any")
        return
    table = read_table(path, width, "any")
    assert table.words == [word for _, words in lines for word in words]
    assert [table.line(row) for row in range(table.rows)] == [number for number, _ in lines]


@pytest.mark.parametrize(("ending", "said"), [("bim", "at least one SNP"), ("fam", "at least one sample")])
def test_empty_files_are_refused(prefix, ending, said):
    Path(f"{prefix}.{ending}").write_text("\n")
    assert said in str(_refusal(prefix))


# The failure table: phenotypes


def test_phenotypes_coded_zero_and_one_are_refused_not_taken_for_missing(prefix):
    error = _refusal(prefix, Study(test="logistic", phenotype="pheno"), phenotypes=_with_phenotypes(prefix, [0, 1] * 6))
    assert "site.pheno, column pheno: its values are 0 and 1, expected 1 for controls and 2 for cases" in str(error)
    assert "add 1" in error.hint


def test_a_quantity_is_refused_where_cases_and_controls_are_asked_for(prefix):
    study = Study(test="chi_square", phenotype="pheno")
    error = _refusal(prefix, study, phenotypes=_with_phenotypes(prefix, [0.5 * at for at in range(N)]))
    assert "expected 1 (control) and 2 (case)" in str(error)
    assert error.found == "0, 0.5, 1, 1.5, 2, ..."


def test_a_quantity_with_few_values_is_taken_where_the_study_says_so(prefix):
    values = [0, 1, 2] * 4
    study = Study(test="linear", phenotype="pheno", few_values=True)
    assert open_cohort(prefix, study, _with_phenotypes(prefix, values)).phenotype.tolist() == values
    assert "study.few_values: true" in _refusal(prefix, LINEAR, phenotypes=_with_phenotypes(prefix, values)).hint
    with pytest.raises(ValueError, match="few_values belongs to test linear"):
        Study(test="logistic", few_values=True)
    assert "few_values" not in LINEAR.model_dump(), "sites of release 0.1.0 refuse a study with it"
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_cases_and_controls_are_refused_where_a_quantity_is_asked_for(prefix):
    error = _refusal(prefix, LINEAR, phenotypes=_with_phenotypes(prefix, [1, 2] * 6))
    assert "its values are the codes of control and case; test linear expects a quantity" in str(error)


@pytest.mark.parametrize("test", ["linear", "logistic"])
def test_phenotypes_that_are_all_missing_are_refused(prefix, test):
    study = Study(test=test, phenotype="pheno")
    error = _refusal(prefix, study, phenotypes=_with_phenotypes(prefix, ["NA"] * N))
    assert "every sample's value is missing" in str(error)


def test_samples_none_of_which_has_a_sex_are_refused_with_the_reason(tmp_path):
    prefix = write_plink(tmp_path / "p", random_copies(2, 4), people=[f"F I{at} 0 0 0 1" for at in range(4)])
    assert "no sample has both a phenotype and a sex (column 5, 1 or 2)" in str(_refusal(prefix))


# The failure table: columns

COVARIATES = Study(test="logistic", covariates=("AGE", "PACKS"))


def _covariates(prefix: Path, text: str) -> Path:
    path = Path(f"{prefix}.cov")
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said", "found"),
    [
        ("FID IID AGE\nF0 I0 1\n", "site.cov, line 1: has no column PACKS, which the study asks for", "AGE"),
        ("F0 I0 1 2\n", "site.cov, line 1: expected a header that begins with FID IID", "F0 I0"),
        ("", "site.cov, line 1: expected a header", ""),
        ("FID IID AGE AGE\n", "site.cov, line 1: a column stands twice", "AGE"),
        ("FID IID AGE PACKS\nF0 I0 1 2\nF1 I1 1\n", "line 3: 3 columns, expected 4: as many as the header", ""),
        ("FID IID AGE PACKS\n\nF0 I0 1 2\nF1 I1 1 x\n", "site.cov, line 4: PACKS: expected a number", "x"),
        ("FID IID AGE PACKS\nF0 I0 1 2\nF0 I0 1 2\n", "line 3: the person (FID, IID): expected persons", "F0 I0"),
        ("FID IID AGE PACKS\n", "site.cov: is empty, expected at least one person", ""),
        ("FID IID AGE PACKS\nI0 F0 1 2\n", "none of its persons is in", "1 persons; the .fam file's first is F0 I0"),
    ],
)  # fmt: skip
def test_wrong_covariate_files_are_refused(prefix, text, said, found):
    error = _refusal(prefix, COVARIATES, covariates=_covariates(prefix, text))
    assert error.code is ErrorCode.INVALID_INPUT
    assert said in str(error)
    assert error.found == found


def test_columns_are_found_by_name_whatever_else_the_file_has(prefix):
    text = "#FID IID PACKS HEIGHT AGE\n" + "".join(f"F{at} I{at} {at} tall {at * 10}\n" for at in range(N))
    cohort: Cohort = open_cohort(prefix, COVARIATES, covariates=_covariates(prefix, text))
    np.testing.assert_array_equal(cohort.covariates[3], [30, 3])


def test_a_study_that_asks_for_columns_of_a_file_that_the_site_has_not_is_refused(prefix):
    assert "study.covariates: asks for AGE, PACKS, and this site has no .cov file" in str(_refusal(prefix, COVARIATES))
    assert "study.phenotype: asks for pheno, and this site has no .pheno file" in str(_refusal(prefix, LINEAR))
