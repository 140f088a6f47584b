"""Sums that begin with zeros, in the layout that the updates have, for what is not there in the first round."""

import numpy as np
import pytest

from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_reduction.engine import Engine

LAYOUT = Layout.of([
    Entry("w", "F32", (40_000,)), Entry("h", "F16", (9,)), Entry("m", "F32", (3,), Rule.AVERAGE),
])  # fmt: skip
HALF = {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}}


@pytest.fixture
def setting(cases, store, small_leaves):
    class Setting:
        updates = [cases.random_arrays(LAYOUT, k) for k in range(3)]

        def refs(self):
            return {
                f"site-{k}": (1.0, cases.ref_of(cases.encode(LAYOUT, update), store, f"updates/p/{k}"))
                for k, update in enumerate(self.updates)
            }

        def job(self, refs=None, *, model=None, **more):
            return cases.job_of(
                model, refs or self.refs(), **{"from_zero": None if model else True, "strategy": HALF} | more
            )

        def zeros(self):
            return cases.ref_of(
                cases.encode(LAYOUT, {entry.name: np.zeros(entry.shape) for entry in LAYOUT}), store, "models/p/0"
            )  # fmt: skip

    return Setting()


def _digests(reduced):
    assert (reduced.error, reduced.refused) == ("", ())
    return {name: ref.digest for name, ref in reduced.outputs.items()}


def test_a_sum_from_zero_has_the_bits_of_one_onto_a_model_of_zeros(setting, store, cases):
    made = Engine(store).run(setting.job())
    assert set(made.outputs) == {"model", "momentum"}
    shards = cases.sharded(Engine(store), setting.job(), [0, 1, leaf_count(LAYOUT.size)])
    assert _digests(shards) == _digests(made)
    assert _digests(Engine(store).run(setting.job(model=setting.zeros()))) == _digests(made)


def test_a_single_update_onto_nothing_is_summed_and_not_adopted(setting, store, cases):
    refs = {"site-0": setting.refs()["site-0"]}
    made = cases.decode(LAYOUT, cases.bytes_of(Engine(store).run(setting.job(refs)).outputs["model"], store))
    np.testing.assert_allclose(made["w"], setting.updates[0]["w"] / 2)


@pytest.mark.parametrize("first", [True, False])
def test_an_update_unlike_most_others_is_refused_even_if_it_is_the_first(setting, store, cases, first):
    other = Layout.of([Entry("w", "F32", (39_999,)), *LAYOUT.entries[1:]])
    odd = cases.ref_of(cases.encode(other, cases.random_arrays(other, 1)), store, "updates/p/odd")
    name = "site-0" if first else "site-2"
    reduced = Engine(store).run(setting.job(setting.refs() | {name: (1.0, odd)}))
    (refusal,) = reduced.refused
    assert refusal.participant == name
    assert "entry w has shape" in refusal.reason


def test_a_reduction_without_a_readable_update_names_all_of_them(setting, store, cases):
    junk = cases.ref_of(b"junk" * 9, store, "updates/p/junk")
    reduced = Engine(store).run(setting.job({"a": (1.0, junk), "b": (1.0, junk)}))
    assert [refusal.participant for refusal in reduced.refused] == ["a", "b"]


def test_a_former_mean_among_the_updates_becomes_the_mean_of_more(setting, store, cases):
    """(2 former + sum of changes) / 5 by the strategy that the coordinator gives where participants came later."""
    former = cases.random_arrays(LAYOUT, 9)
    refs = setting.refs() | {"former-control": (2.0, cases.ref_of(cases.encode(LAYOUT, former), store, "models/p/c"))}
    strategy = {"optimizer": {"name": "sgd", "lr": (3 + 2) / 5, "momentum": 0.0}}
    outputs = Engine(store).run(setting.job(refs, strategy=strategy)).outputs
    assert set(outputs) == {"model"}
    made = cases.decode(LAYOUT, cases.bytes_of(outputs["model"], store))
    expected = (2 * former["w"] + sum(update["w"] for update in setting.updates)) / 5
    np.testing.assert_allclose(made["w"], expected, rtol=1e-5, atol=1e-6)
