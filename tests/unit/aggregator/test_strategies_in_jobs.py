"""Strategies through the engine: as in memory, and the same bits in one job and in many."""

import itertools

import numpy as np
import pytest

import hanse_learning
from hanse_fabric.messages import JobKind
from hanse_fabric.messages.reduction_jobs import MEASURE_LEAVES, MEASURED
from hanse_fabric.plugins import STRATEGIES, find
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.server.config import check_strategy, state_names
from hanse_reduction.engine import Engine
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install

LAYOUT = Layout.of([
    Entry("w", "F32", (150_000,)), Entry("v", "F64", (9_000,)), Entry("m", "F32", (30,), Rule.AVERAGE),
    Entry("s", "F32", (30,), Rule.POOL_VARIANCE, "m"), Entry("n", "I64", (3,), Rule.KEEP_NEWEST),
])  # fmt: skip
BUFFERS = {"m": "average", "s": ("pool_variance", "m")}
COUNT = 7
WEIGHTS = [1.0 + k for k in range(COUNT)]
INFO = {"normalizer": [2.0 + k for k in range(COUNT)], "first_loss": [0.5 + k for k in range(COUNT)]}
SECTIONS = {
    "masked": {"sign_mask": {"tau": 0.4}},
    "masked-yogi": {"sign_mask": {"tau": 0.4}, "optimizer": {"name": "yogi"}},
    "feddyn": {"optimizer": {"name": "feddyn", "share": 0.5}},
    "geometric_median": {"reduction": {"name": "geometric_median"}},
    "krum": {"reduction": {"name": "krum", "byzantine": 2}},
    "multi_krum-adam": {"reduction": {"name": "multi_krum", "byzantine": 2}, "optimizer": {"name": "adam"}},
    "bulyan-masked": {"reduction": {"name": "bulyan", "byzantine": 1}, "sign_mask": {"tau": 0.6}},
    "trimmed_mean-adagrad": {
        "reduction": {"name": "trimmed_mean", "fraction": 0.2},
        "optimizer": {"name": "adagrad"},
    },
    "norm_clipping-avgm": {"reduction": {"name": "norm_clipping", "norm": 30.0}, "optimizer": {"name": "sgd"}},
    "fednova": {"reduction": {"name": "fednova"}},
    "qfedavg": {"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}},
}


def hostile(updates):
    """The same, the first one 50 times as long."""
    loud = {name: (50 * updates[0][name]).astype(updates[0][name].dtype) for name in ("w", "v")}
    return [{**updates[0], **loud}, *updates[1:]]


@pytest.fixture
def setting(cases, store, small_leaves):
    """Seven updates in the store; the first is hostile."""

    class Setting:
        model = cases.random_arrays(LAYOUT, 99)
        updates = hostile([cases.random_arrays(LAYOUT, k) for k in range(COUNT)])
        refs = [cases.ref_of(cases.encode(LAYOUT, update), store, f"updates/p/{k}") for k, update in enumerate(updates)]

        def job(self, section, *, state=None, model=None, round_=1):
            model = model or cases.ref_of(cases.encode(LAYOUT, self.model), store, "models/p/0")
            names = {f"site-{k}": (WEIGHTS[k], ref) for k, ref in enumerate(self.refs)}
            job = cases.job_of(model, names, strategy=section, state=state or {})
            updates = tuple(
                update.model_copy(update={"info": {name: numbers[k] for name, numbers in INFO.items()}})
                for k, update in enumerate(job.updates)
            )
            return job.model_copy(update={"updates": updates, "round": round_})

        def sharded(self, job, cuts):
            engine, count = Engine(store), leaf_count(LAYOUT.size)
            opened = engine.run(job.model_copy(update={"kind": JobKind.OPEN}))
            assert (opened.error, opened.refused) == ("", ())
            job = job.model_copy(update={"uploads": opened.uploads})
            if check_strategy(job.strategy).reduction.measures():
                measured = []
                for first in range(0, count, MEASURE_LEAVES):
                    cut = (first, min(first + MEASURE_LEAVES, count))
                    outcome = engine.run(job.model_copy(update={"kind": JobKind.MEASURE, "leaves": cut}))
                    assert (outcome.error, outcome.refused) == ("", ())
                    measured.append(outcome.outputs[MEASURED])
                job = job.model_copy(update={"measured": tuple(measured)})
            parts = []
            for cut in itertools.pairwise(cuts):
                parts += engine.run(job.model_copy(update={"kind": JobKind.SHARD, "leaves": cut})).parts
            return engine.run(job.model_copy(update={"kind": JobKind.CLOSE, "parts": tuple(parts)}))

        def read(self, ref):
            return cases.decode(LAYOUT, cases.bytes_of(ref, store))

    return Setting()


@pytest.mark.parametrize("name", SECTIONS)
def test_a_strategy_in_one_job_and_in_shards_has_the_same_bits_and_is_that_in_memory(name, setting, store):
    section = SECTIONS[name]
    count = leaf_count(LAYOUT.size)
    assert count > MEASURE_LEAVES
    expected, kept = hanse_learning.reduce(section, setting.model, setting.updates, WEIGHTS, info=INFO, buffers=BUFFERS)
    job = setting.job(section)
    whole = Engine(store, threads=1).run(job)
    assert (whole.error, whole.refused) == ("", ())
    assert setting.sharded(job, [0, 1, 5, count]).outputs == whole.outputs
    assert {*whole.outputs} == {"model", *state_names(check_strategy(section))}
    if kept.arrays:
        # A second round, from what the first has left.
        state = {each: ref for each, ref in whole.outputs.items() if each != "model"}
        again = setting.job(section, state=state, model=whole.outputs["model"], round_=2)
        again = again.model_copy(update={"output_key": "models/p/abcdefghijkl/r2-reduce"})
        whole = Engine(store).run(again)
        assert (whole.error, whole.refused) == ("", ())
        expected, kept = hanse_learning.reduce(
            section, expected, setting.updates, WEIGHTS, kept, info=INFO, buffers=BUFFERS
        )
    made = setting.read(whole.outputs["model"])
    for entry in LAYOUT:
        np.testing.assert_allclose(made[entry.name], expected[entry.name], 1e-6, 1e-6)
    if name in ("krum", "multi_krum-adam", "bulyan-masked"):
        assert np.abs(made["w"]).max() < 15  # the hostile update is 50 times as long


@pytest.mark.parametrize("name", ["fednova", "qfedavg"])
def test_updates_without_the_numbers_that_a_strategy_needs_are_an_error_that_names_them(name, setting, store):
    job = setting.job(SECTIONS[name])
    without = tuple(update.model_copy(update={"info": {"steps": 3.0}}) for update in job.updates[:1]) + job.updates[1:]
    needed = check_strategy(SECTIONS[name]).reduction.needs()[0]
    assert needed in Engine(store).run(job.model_copy(update={"updates": without})).error


def test_too_few_updates_for_krum_are_an_error(setting, store):
    job = setting.job({"reduction": {"name": "krum", "byzantine": 3}})
    assert Engine(store).run(job).error == "updates: 7 is not 9 or more, which krum takes"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_model_of_buffers_alone_is_reduced_by_every_strategy(name, cases, store):
    layout = Layout.of([Entry("n", "I64", (3,), Rule.KEEP_NEWEST)])
    encoded = [cases.encode(layout, {"n": np.full(3, k)}) for k in range(COUNT)]
    refs = {f"site-{k}": (1.0, cases.ref_of(data, store, f"updates/p/{k}")) for k, data in enumerate(encoded)}
    job = cases.job_of(cases.ref_of(encoded[0], store, "models/p/0"), refs, strategy=SECTIONS[name])
    updates = (
        update.model_copy(update={"info": {named: numbers[k] for named, numbers in INFO.items()}})
        for k, update in enumerate(job.updates)
    )
    reduced = Engine(store).run(job.model_copy(update={"updates": tuple(updates)}))
    assert (reduced.error, reduced.refused) == ("", ())


@pytest.fixture
def winsorized(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path, "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY))


@pytest.mark.usefixtures("winsorized")
def test_a_strategy_from_a_package_is_reduced_in_jobs_to_the_bits_of_memory(setting, store):
    section = {"reduction": {"name": "winsorized_mean", "cut": 2}}
    job = setting.job(section).model_copy(update={"strategy_digest": find(STRATEGIES, "winsorized_mean").digest()})
    whole = Engine(store).run(job).outputs["model"]
    closed = setting.sharded(job, [0, 1, 2, leaf_count(LAYOUT.size)])
    assert closed.outputs["model"].digest == whole.digest
    expected, _ = hanse_learning.reduce(section, setting.model, setting.updates, WEIGHTS, buffers=BUFFERS)
    made = setting.read(whole)
    assert all(made[name].tobytes() == expected[name].tobytes() for name in expected)


SAME = {"reduction": {"name": "winsorized_mean"}}


@pytest.mark.usefixtures("winsorized")
def test_a_strategy_that_is_other_code_than_the_coordinators_is_refused_naming_both(setting, store):
    digest = find(STRATEGIES, "winsorized_mean").digest()
    reduced = Engine(store).run(setting.job(SAME).model_copy(update={"strategy_digest": "a" * 64}))
    assert reduced.code == "conflict"
    assert reduced.error.startswith(
        f"strategy winsorized_mean of winsorized 1.0: this aggregator has digest {digest}, "
        f"the coordinator has digest {'a' * 64}"
    )
    reduced = Engine(store).run(setting.job(SAME).model_copy(update={"strategy_digest": None}))
    assert f"this aggregator has digest {digest}, the coordinator has Hanse's own" in reduced.error
    same = setting.job({"reduction": {"name": "median"}}).model_copy(update={"strategy_digest": "a" * 64})
    assert "this aggregator has Hanse's own, the coordinator has digest aaa" in Engine(store).run(same).error


def test_a_strategy_that_an_aggregator_has_not_is_refused_with_those_that_it_has(setting, store):
    reduced = Engine(store).run(setting.job(SAME).model_copy(update={"strategy_digest": "a" * 64}))
    assert reduced.code == "invalid-input"
    assert "'winsorized_mean' is no strategy that is installed here; known are bulyan" in reduced.error


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("return updates[0] * 1", "strategy careless: combine returned ndarray; it is to write in place"),
        ("out[len(out) // 2 :] = 0", "strategy careless: combine has written no number into column 0 of "),
        ("out[:-1] = 0", "strategy careless: combine has written no number into column "),
    ],
)
def test_what_an_aggregators_memory_held_before_is_in_no_model_whatever_a_strategy_leaves_unwritten(
    written, said, setting, store, tmp_path, monkeypatch
):
    source = (
        "from hanse_learning.server.config import ReductionConfig\nclass Careless(ReductionConfig):\n"
        f"    def combine(self, updates, weights, out):\n        {written}\n"
    )
    name = f"careless_{abs(hash(written))}"
    monkeypatch.syspath_prepend(
        install(tmp_path, "careless", {name: source}, {"hanse.strategies": {"careless": f"{name}:Careless"}})
    )
    digest = find(STRATEGIES, "careless").digest()
    job = setting.job({"reduction": {"name": "careless"}}).model_copy(update={"strategy_digest": digest})
    reduced = Engine(store).run(job)
    assert (reduced.code, reduced.outputs) == ("invalid-input", {})
    assert reduced.error.startswith(said)


@pytest.mark.parametrize("method", ["combine", "measure", "reweigh"])
def test_a_strategy_that_raises_ends_the_job_naming_it_and_its_line(method, setting, store, tmp_path, monkeypatch):
    source = (
        "from hanse_learning.server.config import ReductionConfig\n"
        "class Raising(ReductionConfig):\n"
        "    def measure(self, updates):\n        return {}\n"
        "    def reweigh(self, totals, weights, info):\n        return weights\n"
        "    def combine(self, updates, weights, out):\n        out[...] = 0\n"
    )
    source = source.replace(f"def {method}(", f"def {method}(self, *given):\n        return 1 / 0\n    def _{method}(")
    entries = {"hanse.strategies": {"raising": f"raising_{method}:Raising"}}
    monkeypatch.syspath_prepend(install(tmp_path, "raising", {f"raising_{method}": source}, entries))
    digest = find(STRATEGIES, "raising").digest()
    job = setting.job({"reduction": {"name": "raising"}}).model_copy(update={"strategy_digest": digest})
    reduced = Engine(store).run(job)
    assert reduced.code == "invalid-input"
    assert reduced.error.startswith("strategy raising of raising 1.0 raised ZeroDivisionError in line ")
    assert reduced.error.endswith(f" of raising_{method}.py: division by zero")
