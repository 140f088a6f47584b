"""The SNPs that cohorts have in common, and that every site counts copies of the same allele of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_genomics.files import Cohort, CommonSnps, match, open_cohort, text
from hanse_genomics.files.alleles import decide, oriented
from hanse_genomics.files.pairs import Pairs
from hanse_genomics.files.snps import SnpTable
from hanse_genomics.genotypes import dosages, missing
from hanse_genomics.hub import STEPS as HUB
from hanse_genomics.hub.step import Finished
from hanse_genomics.notes import left_out
from hanse_genomics.site.opening import offered
from hanse_schemas.study import Study
from plink_files import Snp, random_copies, write_plink

STUDY = Study(test="chi_square")
KEEPING = Study(test="chi_square", ambiguous="keep")
HAPMAP = Path(__file__).parents[2] / "data" / "hapmap1"


def _table(*snps: Snp) -> SnpTable:
    labels = ["0", *map(str, range(1, 23)), "X", "Y", "XY", "MT"]
    return SnpTable(
        np.array([labels.index(snp[0]) for snp in snps], np.int8),
        np.array([snp[1] for snp in snps], np.int64),
        [str(snp[2]) for snp in snps],
        Pairs.of(*([str(snp[at]) for snp in snps] for at in (3, 4))),
    )


def _opened(tables: Mapping[str, SnpTable], study: Study = STUDY) -> Finished:
    return HUB["open"](study, {}, {name: offered(table) for name, table in tables.items()}, {})


def _common(tables: Mapping[str, SnpTable], study: Study = STUDY) -> list[tuple[str, int, str, str, str]]:
    snps = CommonSnps.read(_opened(tables, study).outputs["snps"])
    return list(zip(snps.chromosome, snps.position.tolist(), snps.name, snps.first, snps.second, strict=True))


# The intersection


def test_common_snps_are_those_of_the_same_chromosome_position_and_name_in_genome_order():
    one = _table(("2", 5, "e", "A", "G"), ("1", 9, "b", "A", "G"), ("1", 1, "a", "A", "G"), ("X", 1, "x", "C", "A"))
    two = _table(("1", 1, "a", "G", "A"), ("1", 9, "other", "A", "G"), ("2", 6, "e", "A", "G"), ("X", 1, "x", "A", "C"))
    assert _common({"one": one, "two": two}) == [("1", 1, "a", "A", "G"), ("X", 1, "x", "A", "C")]


def test_positions_that_are_not_known_leave_the_names_to_decide():
    one = _table(*[("0", 0, name, "A", "G") for name in "dcba"])
    two = _table(*[("0", 0, name, "A", "G") for name in "bdxy"])
    assert [snp[2] for snp in _common({"one": one, "two": two})] == ["b", "d"]


PLACES = st.lists(
    st.tuples(st.sampled_from(["1", "2", "X"]), st.integers(0, 3), st.sampled_from(["a", "b", "rs1"])), max_size=12
)


@settings(max_examples=50, deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=4))
def test_the_intersection_is_that_of_the_sets(cohorts):
    tables = {f"c{at}": _table(*[(*snp, "A", "G") for snp in snps]) for at, snps in enumerate(cohorts)}
    order = {"1": 1, "2": 2, "X": 23}
    alone = [{snp for snp in snps if snps.count(snp) == 1} for snps in cohorts]
    expected = sorted(set.intersection(*alone), key=lambda snp: (order[snp[0]], *snp[1:]))
    if not expected:
        with pytest.raises(HanseError, match="no SNP in common"):
            _common(tables)
        return
    assert [snp[:3] for snp in _common(tables)] == expected


def test_cohorts_without_a_common_snp_are_refused_by_name():
    with pytest.raises(HanseError) as caught:
        _common({"kiel": _table(("1", 1, "a", "A", "G")), "bremen": _table(("1", 2, "a", "A", "G"))})
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "the cohorts bremen, kiel have no SNP in common: chromosome, position and name" in str(caught.value)


def test_duplicate_snps_and_negative_positions_of_a_cohort_are_left_out_and_counted():
    one = _table(
        ("1", 1, "a", "A", "G"), ("1", 1, "a", "A", "C"), ("1", 1, "b", "A", "G"), ("1", -4, "c", "A", "G"),
        ("1", -4, "c", "A", "G"), ("1", 5, "d", "A", "G"),
    )  # fmt: skip
    two = _table(*[("1", at, name, "A", "G") for at, name in ((1, "a"), (1, "b"), (5, "d"))])
    finished = _opened({"one": one, "two": two})
    assert finished.outputs["snps"]["position"].tolist() == [1, 5]
    assert finished.facts["cohorts"] == {
        "one": {"snps": 6, "duplicates": 2, "negative": 2, "flipped": 0, "incompatible": 0},
        "two": {"snps": 3, "duplicates": 0, "negative": 0, "flipped": 0, "incompatible": 0},
    }


def test_a_sites_list_of_alleles_does_not_tell_which_one_is_rare():
    straight = offered(_table(("1", 1, "a", "A", "G"), ("1", 2, "b", "T", "C")))
    turned = offered(_table(("1", 1, "a", "G", "A"), ("1", 2, "b", "C", "T")))
    assert {name: array.tolist() for name, array in straight.items()} == {
        name: array.tolist() for name, array in turned.items()
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {"position": t["position"][:-1]}, "not of one length"),
        (lambda t: {"pair": t["pair"] + 1}, "it has pair 1, expected one of its 1"),
        (lambda t: {"pair": t["pair"] - 1}, "below 0"),
        (lambda t: {"chromosome": t["chromosome"] + 100}, "above 26"),
        (lambda t: {"position": t["position"].astype(float)}, "whole numbers"),
        (lambda t: {"low": t["low"][:0]}, "not of one length"),
    ],
)
def test_an_inconsistent_list_of_snps_is_refused_with_the_cohorts_name(change, said):
    good = offered(_table(("1", 1, "a", "A", "G"), ("1", 2, "b", "A", "G")))
    with pytest.raises(HanseError, match="the list of SNPs of bad") as caught:
        HUB["open"](STUDY, {}, {"good": good, "bad": good | change(good)}, {})
    assert said in str(caught.value)


# Alleles


@pytest.mark.parametrize(
    ("own", "study", "expected"),
    [
        (("A", "G"), ("A", "G"), (False, False)),
        (("G", "A"), ("A", "G"), (True, False)),
        (("T", "C"), ("A", "G"), (False, True)),
        (("C", "T"), ("A", "G"), (True, True)),
        (("T", "A"), ("A", "T"), (True, False)),
        (("A", "C"), ("A", "G"), None),
        (("0", "G"), ("A", "G"), (False, False)),
        (("0", "A"), ("A", "G"), (True, False)),
        (("0", "C"), ("A", "G"), (False, True)),
        (("0", "0"), ("A", "G"), (False, False)),
        (("G", "0"), ("0", "G"), (True, False)),
        (("1", "2"), ("1", "2"), (False, False)),
        (("2", "1"), ("1", "2"), (True, False)),
        (("1", "2"), ("1", "3"), None),
        (("ATT", "A"), ("A", "ATT"), (True, False)),
        (("ATT", "T"), ("A", "ATT"), None),
    ],
)
def test_alleles_are_compared_as_they_are_and_then_from_the_other_strand(own, study, expected):
    assert oriented(*own, *study) == expected


@pytest.mark.parametrize(
    ("pairs", "pair"),
    [
        ([("A", "G"), ("C", "T"), ("C", "T")], ("C", "T")),
        ([("C", "T"), ("A", "G")], ("A", "G")),
        ([("0", "G"), ("C", "T"), ("0", "0")], ("C", "T")),
        ([("0", "G"), ("0", "A")], ("A", "G")),
        ([("0", "G"), ("0", "G")], ("0", "G")),
        ([("0", "0"), ("0", "0")], ("0", "0")),
    ],
)
def test_the_study_counts_the_alleles_that_most_cohorts_have(pairs, pair):
    assert decide(pairs).pair == pair
    assert not any(decide(pairs).incompatible)


def test_flips_and_alleles_that_do_not_agree_are_counted_by_cohort_and_explained():
    rows = [("1", 1, "same"), ("1", 2, "flip"), ("1", 3, "wrong"), ("1", 4, "at"), ("1", 5, "cg")]
    alleles = {"same": "AG", "flip": "AG", "wrong": "AG", "at": "AT", "cg": "CG"}
    one = _table(*[(*snp, *alleles[snp[2]]) for snp in rows])
    other = alleles | {"flip": "CT", "wrong": "CA"}
    tables = {"kiel": one, "lund": one, "riga": _table(*[(*snp, *other[snp[2]]) for snp in rows])}
    finished = _opened(tables, KEEPING)
    assert finished.facts["common"] == 4
    assert finished.facts["ambiguous"] == 2
    assert finished.facts["incompatible"] == 1
    assert finished.facts["examples"] == ["wrong is A/G in kiel, A/G in lund, A/C in riga"]
    told = {name: (each["flipped"], each["incompatible"]) for name, each in finished.facts["cohorts"].items()}
    assert told == {"kiel": (0, 0), "lund": (0, 0), "riga": (1, 1)}
    dropped = _opened(tables)
    assert (dropped.facts["common"], dropped.facts["ambiguous"]) == (2, 2)
    assert text.unpack(dropped.outputs["snps"]["name"]) == ["same", "flip"]


def test_a_snp_of_which_each_cohort_names_one_allele_is_left_out_where_it_may_only_mark_the_strand():
    """One cohort has A alone and another T alone: another allele, or the same one from the other strand."""
    one, other = (_table(("1", 1, "rs1", base, "0"), ("1", 2, "rs2", "A", "G")) for base in "AT")
    tables = {"kiel": one, "lund": one, "riga": other}
    finished = _opened(tables)
    assert text.unpack(finished.outputs["snps"]["name"]) == ["rs2"]
    assert finished.facts["ambiguous"] == 1
    assert _common(tables, KEEPING) == [("1", 1, "rs1", "A", "T"), ("1", 2, "rs2", "A", "G")]


def test_what_is_left_out_is_told_with_the_results():
    one = _table(("1", 1, "rs1", "A", "T"), ("1", 2, "rs2", "A", "G"), ("1", 3, ".", "A", "G"), ("1", 3, ".", "C", "G"))
    facts = _opened({"kiel": one, "lund": one}).facts
    first, kiel, lund = left_out(STUDY, facts)
    assert first.startswith("1 SNPs that the cohorts have in common were left out: their alleles are A and T")
    assert kiel.startswith("2 lines of the .bim file of kiel were left out")
    assert "lund" in lund
    assert left_out(KEEPING, facts) == [kiel, lund]


def test_the_lowest_version_of_the_sites_counts_and_one_that_is_no_number_is_refused():
    listed = offered(_table(("1", 1, "a", "A", "C")))
    newer = {**listed, "version": np.array([7], dtype=np.int64)}
    assert HUB["open"](STUDY, {}, {"one": newer, "two": newer}, {}).facts["version"] == 7
    assert HUB["open"](STUDY, {}, {"one": newer, "two": listed}, {}).facts["version"] == 1
    for wrong in (np.zeros(0, dtype=np.int64), np.array([0.5])):
        with pytest.raises(HanseError, match="the list of SNPs of two: its version is"):
            HUB["open"](STUDY, {}, {"one": newer, "two": {**listed, "version": wrong}}, {})


def test_snps_none_of_whose_alleles_agree_are_refused_with_an_example():
    with pytest.raises(HanseError, match=r"none has alleles that agree: a is A/C in one, A/G in two"):
        _common({"one": _table(("1", 1, "a", "A", "C")), "two": _table(("1", 1, "a", "A", "G"))})


def test_the_order_of_cohorts_changes_nothing():
    rng = np.random.default_rng(3)
    bases = ["AG", "CT", "AC", "GA", "AT", "0G", "00"]
    tables = {
        name: _table(
            *[("1", int(at), f"rs{at}", *bases[rng.integers(len(bases))]) for at in rng.permutation(300)[:250]]
        )
        for name in "abc"
    }
    straight, turned = _opened(tables), _opened(dict(reversed(tables.items())))
    assert straight.facts == turned.facts
    for name, array in straight.outputs["snps"].items():
        np.testing.assert_array_equal(array, turned.outputs["snps"][name])


def test_the_list_of_snps_goes_through_a_tensor_file_and_back():
    snps = _opened({"one": _table(("1", 1, "ä", "A", "G"), ("MT", 7, "b" * 300, "0", "TTG"))}).outputs["snps"]
    again = CommonSnps.read(dict(decode_tensors(encode_tensors(layout_like(snps), snps))[1]))
    assert again.name == ["ä", "b" * 300]
    assert again.chromosome == ["1", "MT"]
    assert (again.first, again.second) == (["A", "0"], ["G", "TTG"])


# Counting the same allele everywhere


def _copies_of_first(cohort: Cohort, snps: CommonSnps) -> np.ndarray:
    packed = match(cohort, snps).packed(0, len(snps))[:]
    copies = dosages(packed, cohort.samples).astype(int)
    copies[missing(packed, cohort.samples)] = -1
    return copies


COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A", "0": "0"}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_cohort_shuffled_swapped_and_flipped_counts_the_same(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    snps, people = 40, 9
    copies = random_copies(snps, people, seed=seed, missing=0.15)
    bases = [rng.permutation(list(["AG", "AC", "GT", "CT"][rng.integers(4)])).tolist() for _ in range(snps)]
    listed = [("1", at // 2, f"rs{at}", *bases[at]) for at in range(snps)]
    folder = tmp_path_factory.mktemp("flip")
    straight = open_cohort(write_plink(folder / "straight", copies, snps=listed), STUDY)

    turned, rewritten = copies.copy(), list(listed)
    for at in range(snps):
        chromosome, position, name, a1, a2 = listed[at]
        if rng.random() < 0.5:
            a1, a2 = a2, a1
            turned[at] = np.where(copies[at] < 0, -1, 2 - copies[at])
        if rng.random() < 0.3:
            a1, a2 = COMPLEMENT[a1], COMPLEMENT[a2]
        rewritten[at] = (chromosome, position, name, a1, a2)
    order = rng.permutation(snps)
    prefix = write_plink(folder / "turned", turned[order], snps=[rewritten[at] for at in order])
    other = open_cohort(prefix, STUDY)

    plain = {"a": straight.snps, "b": straight.snps, "c": straight.snps}
    expected = CommonSnps.read(_opened(plain).outputs["snps"])
    found = CommonSnps.read(_opened(plain | {"c": other.snps}).outputs["snps"])
    assert (found.name, found.first, found.second) == (expected.name, expected.first, expected.second)
    np.testing.assert_array_equal(_copies_of_first(other, found), _copies_of_first(straight, expected))


def test_hapmaps_cohorts_count_what_the_whole_counts():
    whole = open_cohort(HAPMAP / "whole" / "hapmap1_100", STUDY)
    parts = {name: open_cohort(HAPMAP / f"client{name}" / f"hapmap1_100_{name}", STUDY) for name in "12"}
    snps = CommonSnps.read(_opened({name: part.snps for name, part in parts.items()}).outputs["snps"])
    assert len(snps) == 98
    both = np.concatenate([_copies_of_first(part, snps) for part in parts.values()], axis=1)
    people = [person for part in parts.values() for person in part.ids]
    order = [people.index(person) for person in whole.ids]
    rows = [whole.snps.name.index(name) for name in snps.name]
    listed = replace(snps, position=whole.snps.position[rows])
    np.testing.assert_array_equal(both[:, order], _copies_of_first(whole, listed))


def test_bim_files_that_were_changed_after_the_study_was_opened_are_refused(tmp_path):
    snps = CommonSnps.read(_opened({"one": _table(("1", 1, "a", "A", "G"), ("1", 1, "b", "A", "G"))}).outputs["snps"])
    for changed, said in [
        ([("1", 1, "a", "A", "G"), ("1", 2, "b", "A", "G")], "b is not in the .bim file any more"),
        ([("1", 1, "a", "A", "G"), ("1", 1, "c", "A", "G")], "b is not in the .bim file any more"),
        ([("1", 1, "a", "A", "C"), ("1", 1, "b", "A", "G")], "a has alleles A/C, the study has A/G"),
    ]:
        cohort = open_cohort(write_plink(tmp_path / "p", random_copies(2, 4), snps=changed), STUDY)
        with pytest.raises(HanseError) as caught:
            match(cohort, snps)
        assert caught.value.code is ErrorCode.CONFLICT
        assert said in str(caught.value)


# Text


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]))))
def test_packed_words_unpack_to_the_same_words(words):
    assert text.unpack(text.pack(words)) == words


def test_words_that_are_cut_off_or_no_utf8_are_refused():
    with pytest.raises(HanseError, match="line feed"):
        text.pack(["a\nb"])
    with pytest.raises(HanseError, match="cut off"):
        text.unpack(text.pack(["ab"])[:-1])
    with pytest.raises(HanseError, match="UTF-8"):
        text.unpack(np.array([0xFF, 10], np.uint8))
    with pytest.raises(HanseError, match="float64"):
        text.unpack(np.zeros(3))
