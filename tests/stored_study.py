"""A study that has ended, as its hub has it: results and summary in the store, their places in the run's record."""

from __future__ import annotations

from typing import Any

import numpy as np

from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics.files import text
from hanse_genomics.results.table import summary_arrays

GENOTYPES = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
STUDY = {"workflow": "association_study", "study": {"test": "linear", "covariates": ["AGE"]}}


async def stored_study(api: Any, operator: str, snps: int, hit: int) -> str:
    """The run of a study in the new project `gwas`, of so many SNPs on two chromosomes; one of them is a hit, and the
    sixth has no p-value."""
    await api.ok("POST", "/v1/projects", operator, {"name": "gwas", "schema": GENOTYPES})
    run = str((await api.ok("POST", "/v1/projects/gwas/runs", operator, {"job": STUDY}))["run"])
    p = np.random.default_rng(7).random(snps)
    p[hit], p[5] = 1e-12, np.nan
    results: dict[str, np.ndarray] = {
        "chromosome": np.where(np.arange(snps) < snps // 2, 1, 23).astype(np.int8),
        "position": np.arange(snps, dtype=np.int64) % (snps // 2) * 100 + 1,
        "name": text.pack(f"rs{number}" for number in range(snps)),
        "first": text.pack(["A"] * snps), "second": text.pack(["G"] * snps),
        "minor": (np.arange(snps) % 2).astype(np.uint8), "reason": np.zeros(snps, np.uint8), "p": p,
        "log10_p": np.log10(p), "beta": np.full(snps, 0.5), "se": np.full(snps, 0.1), "maf": np.full(snps, 0.25),
    }  # fmt: skip
    summary = {"study": STUDY["study"], "lambda": 1.01, "samples": {"tested": 900}, "notes": ["<b>none</b>"]}
    outputs = {}
    for name, arrays in (("results", results), ("summary", summary_arrays(summary))):
        data = bytes(encode_tensors(layout_like(arrays), arrays))
        ref = ref_of_bytes(data, key=f"models/gwas/{run}/outputs/{name}")
        api.hub.store.put(ref.key, data)
        outputs[name] = ref.model_dump(mode="json")
    await api.hub.buckets.runs.change(
        lambda old: old.model_copy(update={"outputs": outputs, "state": "completed"}), project="gwas", run=run
    )
    return run
