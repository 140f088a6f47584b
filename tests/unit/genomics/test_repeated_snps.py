"""SNPs that stand more than once in a file are found by numbers as they are found one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_genomics.files.pairs import Pairs
from hanse_genomics.files.snps import SnpTable
from hanse_genomics.site.opening import repeated

SNP = st.tuples(st.integers(0, 3), st.integers(-1, 4), st.sampled_from(["rs1", "rs2", "rs3"]))


@settings(max_examples=50, deadline=None)
@given(st.lists(SNP, max_size=12))
def test_snps_of_one_chromosome_position_and_name_are_repeated_in_whatever_order_they_stand(
    snps: list[tuple[int, int, str]],
) -> None:
    table = SnpTable(
        np.array([code for code, _, _ in snps], np.int8), np.array([place for _, place, _ in snps], np.int64),
        [name for _, _, name in snps], Pairs.of(["A"] * len(snps), ["C"] * len(snps)),
    )  # fmt: skip
    times = Counter(snps)
    assert repeated(table).tolist() == [times[snp] > 1 for snp in snps]
