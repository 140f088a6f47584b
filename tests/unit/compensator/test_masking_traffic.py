"""What masking costs a site beside its update: less than 1 KiB, whatever the model's size."""

import numpy as np
import pytest

from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages import ObjectRef
from hanse_fabric.tensors.file import write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.ring.files import mask_shape, write_masked
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.tally import encode_tally, tally_count
from hanse_schemas.secure_aggregation import SecureAggregation
from masked_sites import masked_sites


@pytest.mark.parametrize("width", [10, 1000])
def test_a_masked_answer_takes_less_than_a_kibibyte_more_than_a_plain_one(tmp_path, width):
    layout = Layout.of([Entry(f"layers.{n}.weight", "F32", (width, width)) for n in range(8)])
    write_tensors(tmp_path / "plain", layout, {entry.name: np.ones(entry.shape, np.float32) for entry in layout})
    settings = SecureAggregation(mode="compensator", bits=32, largest_weight=10_000)
    plan = make_plan(settings, participants=100, weighting="examples")
    (site,) = masked_sites("triage", 1)
    written = write_masked(tmp_path / "plain", tmp_path / "masked", plan, weight=500, seed=site.seed)
    tally = encode_tally(500, dict.fromkeys(plan.metrics, 0.5), plan, seed=site.seed)
    seed = site.sealed(SealingKey.create().public_bytes, update=mask_shape(written.layout), tally=tally_count(plan))
    ref: ObjectRef = ref_of_bytes(tally)
    told = len(seed.model_dump_json()) + len(ref.model_dump_json())
    longer = (tmp_path / "masked").stat().st_size - (tmp_path / "plain").stat().st_size
    assert longer + len(tally) + told < 1024
