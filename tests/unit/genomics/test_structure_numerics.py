"""The numerics of population structure by themselves: packed counts, correlated pairs, greedy pruning, Krylov space."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_genomics.structure import bits, krylov, linkage, ranges
from hanse_genomics.structure.chunk import chunks
from hanse_genomics.structure.greedy import prune
from hanse_genomics.structure.linkage import Candidates


@given(
    st.integers(1, 40),
    st.lists(st.integers(0, 2**31), max_size=60),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_counts_of_many_cohorts_come_out_of_the_sum_of_their_limbs(cohorts: int, largest: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    totals = np.array([rng.integers(0, one + 1) for one in largest], dtype=np.int64)
    parts = np.zeros((cohorts, len(largest)), dtype=np.int64)
    left = totals.copy()
    for part in parts[:-1]:
        part[:] = rng.integers(0, left + 1)
        left -= part
    parts[-1] = left
    widths, limb = bits.widths_of(np.array(largest, dtype=np.int64)), ranges.limb_bits(cohorts)
    packed = [bits.pack(part, widths, limb) for part in parts]
    assert all((one <= ranges.limbs(cohorts).bound).all() for one in packed)
    assert (bits.unpack(np.sum(packed, axis=0), widths, limb) == totals).all()


def test_a_count_that_no_pool_can_have_is_refused_by_the_site_and_by_the_hub() -> None:
    widths = np.array([3, 0, 4])
    with pytest.raises(HanseError, match="larger than all cohorts together"):
        bits.pack(np.array([8, 0, 1]), widths, 60)
    with pytest.raises(HanseError, match="none negative"):
        bits.unpack(np.array([-1]), widths, 60)
    with pytest.raises(HanseError, match="limbs"):
        bits.unpack(np.array([1, 1]), widths, 60)


def _genotypes(rng: np.random.Generator, snps: int, samples: int, missing: float) -> np.ndarray:
    """Linked genotypes, -1 where missing: (snps, samples)."""
    strands = []
    for _ in range(2):
        now = rng.random(samples)
        rows = []
        for p in rng.uniform(0.02, 0.6, snps):
            now = np.where(rng.random(samples) < 0.85, now, rng.random(samples))
            rows.append(now < p)
        strands.append(np.array(rows))
    genotypes = strands[0].astype(np.int64) + strands[1]
    return np.where(rng.random(genotypes.shape) < missing * rng.random((snps, 1)), -1, genotypes)


def _known(genotypes: np.ndarray, chromosome: np.ndarray) -> Candidates:
    counts = np.stack([(genotypes == value).sum(axis=1) for value in (0, 1, 2, -1)], axis=1)
    return Candidates(np.arange(len(genotypes)), chromosome, counts)


def _plainly_pruned(genotypes: np.ndarray, chromosome: np.ndarray, window: int, step: int, r2: float) -> np.ndarray:
    """The same choice written as PLINK's manual tells it, one pair after the other."""
    known = np.where(genotypes < 0, np.nan, genotypes.astype(float))
    frequency = np.nanmean(known, axis=1) / 2
    minor = np.minimum(frequency, 1 - frequency)
    alive = np.nanvar(known, axis=1) > 1e-12
    for code in np.unique(chromosome):
        begin, end = np.flatnonzero(chromosome == code)[[0, -1]] + (0, 1)
        for start in range(begin, end, step):
            again = True
            while again:
                again = False
                for i in range(start, min(start + window, end)):
                    for j in range(i + 1, min(start + window, end)):
                        if not alive[i] or not alive[j]:
                            continue
                        both = ~np.isnan(known[i]) & ~np.isnan(known[j])
                        x, y = known[i, both], known[j, both]
                        if x.var() > 0 and y.var() > 0 and np.corrcoef(x, y)[0, 1] ** 2 > r2:
                            alive[i if minor[i] < minor[j] - 1e-12 else j] = False
                            again = True
                            break
    return alive


@pytest.mark.parametrize(
    ("window", "step", "r2", "missing"), [(12, 3, 0.2, 0.2), (7, 1, 0.5, 0.0), (30, 7, 0.1, 0.6), (5, 5, 0.3, 0.1)]
)
def test_pruning_from_packed_sums_of_cohorts_chooses_what_the_pooled_genotypes_choose(
    window: int, step: int, r2: float, missing: float
) -> None:
    genotypes = _genotypes(np.random.default_rng(window), 90, 150, missing)
    genotypes[10] = 0
    chromosome = np.repeat([1, 2, 5], [40, 20, 30]).astype(np.int8)
    known = _known(genotypes, chromosome)
    i, j = [], []
    for chunk in chunks(known, window, step, largest=16):
        widths = linkage.widths(chunk.known, *chunk.pairs())
        packed = []
        for part in (genotypes[:, :20], genotypes[:, 20:110], genotypes[:, 110:]):
            rows = part[chunk.start : chunk.start + len(chunk.known)]
            copies, lacking = np.maximum(rows, 0).astype(np.float32), (rows < 0).astype(np.float32)
            sums = linkage.pair_sums(copies, lacking, chunk.reaches, 0, chunk.own, first=0, rows=8)
            packed.append(bits.pack(sums.reshape(-1), widths, ranges.limb_bits(3)))
        total = bits.unpack(np.sum(packed, axis=0), widths, ranges.limb_bits(3)).reshape(-1, 6)
        one, other = chunk.pairs()
        linked = linkage.correlated(chunk.known, total, one, other, r2)
        i.append(one[linked] + chunk.start)
        j.append(other[linked] + chunk.start)
    kept = prune(chromosome, known.minor, known.varies, np.concatenate(i), np.concatenate(j), window, step)
    assert kept.tolist() == _plainly_pruned(genotypes, chromosome, window, step, r2).tolist()
    assert 10 < kept.sum() < 85


def _drive(matrix: np.ndarray, components: int, columns: int, most: int, rounds: int) -> tuple[np.ndarray, float, int]:
    block, projected, blocks = krylov.first_block(len(matrix), columns), np.zeros((0, 0)), []
    done = 0
    while done < rounds:
        done += 1
        blocks.append(block)
        ritz = krylov.advance(blocks, projected, matrix @ block, components)
        vectors = krylov.combined(blocks, ritz.vectors[:, :components])
        if ritz.angle < 1e-9 or not ritz.following.shape[1]:
            break
        projected, block = ritz.projected, ritz.following
        if len(ritz.values) + columns > most:
            blocks, projected = (
                [krylov.combined(blocks, ritz.vectors[:, : most // 2])],
                np.diag(ritz.values[: most // 2]),
            )
    return vectors, ritz.angle, done


def _sine(one: np.ndarray, other: np.ndarray) -> float:
    """Of the largest angle between the spans of orthonormal columns."""
    return float(np.linalg.norm(one - other @ (other.T @ one), 2))


@pytest.mark.parametrize("most", [24, 400])
def test_the_leading_subspace_is_found_also_when_the_blocks_are_restarted(most: int) -> None:
    x = np.random.default_rng(1).standard_normal((300, 200))
    matrix = x @ x.T
    vectors, angle, rounds = _drive(matrix, 4, 6, most, 200)
    true = np.linalg.eigh(matrix)[1][:, :-5:-1]
    assert angle < 1e-9
    assert _sine(vectors, true) < max(angle, 1e-11)
    # No structure at all: eigenvalues lie close together.
    assert rounds < 120


def test_a_matrix_of_small_rank_is_exact_when_its_space_is_complete() -> None:
    x = np.random.default_rng(2).standard_normal((80, 11))
    vectors, angle, rounds = _drive(x @ x.T, 5, 4, 400, 20)
    true = np.linalg.svd(x)[0][:, :5]
    assert _sine(vectors, true) < 1e-12
    assert rounds <= 4
    assert angle < 1e-9


def test_the_sign_of_a_vector_is_that_of_its_largest_entry() -> None:
    vectors = np.array([[0.1, 0.6], [-0.9, -0.6 * (1 + 1e-9)], [0.2, 0.1]])
    assert np.sign(krylov.directed(vectors))[1].tolist() == [1, -1]
    assert (krylov.directed(-vectors) == krylov.directed(vectors)).all()


def test_the_conductor_of_structure_needs_no_numpy() -> None:
    code = "import sys, hanse_genomics.structure.conduct; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
