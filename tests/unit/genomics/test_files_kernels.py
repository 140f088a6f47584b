"""Kernels on packed genotypes against the definition, genotype by genotype, and against bed-reader."""

from __future__ import annotations

import bed_reader
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_genomics.genotypes import count, dosages, group, missing, room, swap
from hanse_schemas.study import TILE
from plink_files import bed_bytes, random_copies, write_plink


def _packed(copies: np.ndarray) -> np.ndarray:
    octets = np.frombuffer(bed_bytes(copies), np.uint8)[3:]
    return octets.reshape(len(copies), -1).copy()


def _naive_counts(copies: np.ndarray, members: np.ndarray) -> np.ndarray:
    return np.array([[[(snp[who] == code).sum() for code in (0, 1, 2, -1)] for who in members] for snp in copies])


SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 140), st.integers(0, 2**32 - 1))


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 4))
def test_counts_are_those_of_each_group_genotype_by_genotype(shape, groups):
    snps, samples, seed = shape
    copies = random_copies(snps, samples, seed=seed, missing=0.2)
    members = np.random.default_rng(seed).random((groups, samples)) < 0.6
    np.testing.assert_array_equal(count(_packed(copies), group(members)), _naive_counts(copies, members))


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_numbers_and_missing_genotypes_are_those_of_the_file(shape):
    snps, samples, seed = shape
    copies = random_copies(snps, samples, seed=seed, missing=0.2)
    packed = _packed(copies)
    for dtype in (np.float32, np.float64):
        numbers = dosages(packed, samples, dtype)
        assert numbers.dtype == dtype
        np.testing.assert_array_equal(numbers, np.where(copies < 0, 0, copies))
    np.testing.assert_array_equal(np.transpose(missing(packed, samples)), np.argwhere(copies < 0))


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_swapped_alleles_exchange_none_and_two_copies_and_keep_missing_ones(shape):
    snps, samples, seed = shape
    copies = random_copies(snps, samples, seed=seed, missing=0.2)
    rows = np.random.default_rng(seed).random(snps) < 0.5
    packed = _packed(copies)
    swap(packed, rows)
    turned = np.where(rows[:, None] & (copies >= 0), 2 - copies, copies)
    everyone = np.ones((1, samples), dtype=bool)
    np.testing.assert_array_equal(dosages(packed, samples), np.where(turned < 0, 0, turned))
    np.testing.assert_array_equal(count(packed, group(everyone)), _naive_counts(turned, everyone))


def test_bits_of_samples_that_do_not_exist_are_not_counted():
    copies = random_copies(5, 33, seed=1)
    packed = _packed(copies)
    everyone = np.ones((1, 33), dtype=bool)
    clean = count(packed, group(everyone))
    for garbage in (0b0100, 0b1000, 0b1100):
        packed[:, -1] = packed[:, -1] & 0b11 | garbage
        np.testing.assert_array_equal(count(packed, group(everyone)), clean)
        np.testing.assert_array_equal(np.transpose(missing(packed, 33)), np.argwhere(copies < 0))


def test_more_snps_than_a_tile_count_as_each_for_itself():
    copies = random_copies(2 * TILE + 7, 70, seed=2)
    members = np.random.default_rng(2).random((3, 70)) < 0.5
    packed = _packed(copies)
    whole = count(packed, group(members))
    single = np.concatenate([count(packed[at : at + 1], group(members)) for at in range(len(packed))])
    np.testing.assert_array_equal(whole, single)
    rows = np.random.default_rng(3).random(len(packed)) < 0.5
    turned = packed.copy()
    swap(turned, rows)
    np.testing.assert_array_equal(
        count(turned, group(members))[:, :, 2], np.where(rows[:, None], whole[:, :, 0], whole[:, :, 2])
    )


def test_a_group_without_people_has_counts_of_zero():
    packed = _packed(random_copies(4, 10))
    assert not count(packed, group(np.zeros((1, 10), dtype=bool))).any()
    assert count(packed[:0], group(np.ones((2, 10), dtype=bool))).shape == (0, 2, 4)


def test_dosages_are_written_into_a_given_buffer_even_a_longer_one():
    copies = random_copies(6, 11, missing=0)
    buffer = room(8, 11, np.float32)
    numbers = dosages(_packed(copies), 11, np.float32, out=buffer)
    np.testing.assert_array_equal(numbers, copies)
    assert np.shares_memory(numbers, buffer)


@pytest.mark.parametrize("samples", [1, 4, 31, 32, 33, 64, 127])
def test_counts_and_numbers_equal_bed_readers(tmp_path, samples):
    copies = random_copies(20, samples, seed=samples)
    prefix = write_plink(tmp_path / "oracle", copies)
    with bed_reader.open_bed(f"{prefix}.bed") as oracle:
        read = oracle.read(dtype=np.float64).T
    packed = np.fromfile(f"{prefix}.bed", np.uint8)[3:].reshape(20, -1)
    np.testing.assert_array_equal(dosages(packed, samples), np.nan_to_num(read, nan=0.0))
    np.testing.assert_array_equal(np.transpose(missing(packed, samples)), np.argwhere(np.isnan(read)))
    everyone = np.ones((1, samples), dtype=bool)
    expected = np.stack([(read == 0).sum(1), (read == 1).sum(1), (read == 2).sum(1), np.isnan(read).sum(1)], axis=1)
    np.testing.assert_array_equal(count(packed, group(everyone))[:, 0], expected)
