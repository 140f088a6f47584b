"""Updates that cannot be reduced are named with the reason, all of them; inputs of our own are an error of the job."""

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import INLINE_LIMIT, JobKind, ObjectRef
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_reduction.engine import Engine
from hanse_reduction.plan import Refusals

LAYOUT = Layout.of([
    Entry("w", "F32", (30_000,)), Entry("h", "F16", (40,)), Entry("n", "I32", (3,), Rule.KEEP_NEWEST),
])  # fmt: skip


@pytest.fixture
def setting(cases, store, small_leaves):
    """Three good updates in the store and the model."""

    class Setting:
        good = {f"site-{k}": cases.random_arrays(LAYOUT, k) for k in range(3)}
        model = cases.ref_of(cases.encode(LAYOUT, cases.random_arrays(LAYOUT, 9)), store, "models/p/0")

        def refs(self, **instead):
            found = {
                name: (1.0, cases.ref_of(cases.encode(LAYOUT, arrays), store, f"updates/p/{name}"))
                for name, arrays in self.good.items()
            }
            return found | {name.replace("_", "-"): (1.0, ref) for name, ref in instead.items()}

        def run(self, strategy=None, **instead):
            return Engine(store).run(cases.job_of(self.model, self.refs(**instead), strategy=strategy))

        def changed(self, name, index, value):
            arrays = {key: array.copy() for key, array in self.good["site-1"].items()}
            arrays[name][index] = value
            return cases.ref_of(cases.encode(LAYOUT, arrays), store, "updates/p/changed")

    return Setting()


def _one(reduced):
    assert reduced.error == ""
    assert reduced.outputs == {}
    (refusal,) = reduced.refused
    return refusal.participant, refusal.code, refusal.reason


@pytest.mark.parametrize("strategy", [{}, {"reduction": {"name": "median"}}])
@pytest.mark.parametrize(("name", "index"), [("w", 0), ("w", 29_999), ("h", 7)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_naming_the_entry(setting, strategy, name, index, value):
    participant, code, reason = _one(setting.run(strategy, site_1=setting.changed(name, index, value)))
    assert (participant, code) == ("site-1", "invalid-input")
    assert f"entry {name} is {value} at element {index}" in reason


def test_large_finite_values_are_not_taken_for_infinity(setting):
    arrays = {key: array.copy() for key, array in setting.good["site-1"].items()}
    arrays["w"][:20] = 1e38
    reduced = setting.run(site_1=setting.changed("w", slice(0, 20), 1e38))
    assert (reduced.error, reduced.refused) == ("", ())


def test_a_tampered_update_is_refused_even_where_one_byte_of_a_late_leaf_changed(setting, cases, store):
    data = bytearray(cases.encode(LAYOUT, setting.good["site-2"]))
    ref = cases.ref_of(bytes(data), store, "updates/p/tampered")
    data[-1] ^= 1
    store.put("updates/p/tampered", bytes(data))
    participant, code, reason = _one(setting.run(site_2=ref))
    assert (participant, code) == ("site-2", "tampered")
    assert "leaf 1" in reason


def test_leaves_that_do_not_give_the_digest_are_refused(setting):
    ref = setting.changed("w", 0, 1.0)
    swapped = ref.model_copy(update={"leaves": ref.leaves[::-1]})
    assert _one(setting.run(site_1=swapped))[:2] == ("site-1", "tampered")


def test_an_object_larger_than_announced_is_refused(setting, store):
    ref = setting.changed("w", 0, 1.0)
    store.put(ref.key, store.get(ref.key, limit=1 << 20) + b"more")
    participant, code, reason = _one(setting.run(site_1=ref))
    assert (participant, code) == ("site-1", "too-large")
    assert "were announced" in reason


def test_an_update_that_is_gone_is_refused(setting):
    missing = ObjectRef(digest="0" * 64, size=10, key="updates/p/nowhere")
    assert _one(setting.run(site_1=missing))[:2] == ("site-1", "not-found")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([Entry("w", "F32", (30_001,)), *LAYOUT.entries[1:]], "entry w has shape"),
        ([Entry("w", "F64", (30_000,)), *LAYOUT.entries[1:]], "entry w has dtype F64, F32 was expected"),
        (LAYOUT.entries[:-1], "is missing"),
        ([*LAYOUT.entries, Entry("x", "F32", (1,))], "entry x is not in the model"),
    ],
)
def test_a_wrong_shape_dtype_or_set_of_entries_is_refused_in_words(setting, cases, store, entries, reason):
    other = Layout.of(entries)
    ref = cases.ref_of(cases.encode(other, cases.random_arrays(other, 1)), store, "updates/p/other")
    participant, code, said = _one(setting.run(site_1=ref))
    assert (participant, code) == ("site-1", "invalid-input")
    assert reason in said


def test_an_update_that_is_no_tensor_file_is_refused(setting, cases, store):
    for junk in (b"", b"junk", b"\xff" * 100, b"\x10" + bytes(7) + b"{" * 16):
        ref = cases.ref_of(junk, store, "updates/p/junk")
        assert _one(setting.run(site_1=ref))[:2] == ("site-1", "invalid-input")


def test_all_bad_updates_are_named_at_once(setting, cases, store):
    reduced = setting.run(
        site_0=setting.changed("h", 3, np.nan), site_2=ObjectRef(digest="0" * 64, size=10, key="updates/p/nowhere")
    )
    assert [refusal.participant for refusal in reduced.refused] == ["site-0", "site-2"]


def test_a_tampered_model_is_an_error_of_the_job_not_of_a_participant(setting, store):
    data = bytearray(store.get("models/p/0", limit=1 << 20))
    data[-1] ^= 1
    store.put("models/p/0", bytes(data))
    for reduced in (setting.run(), setting.run(site_1=setting.changed("w", 0, np.nan))):
        assert "model: leaf 1" in reduced.error
        assert reduced.refused == ()


def test_half_precision_parameters_are_refused_for_adaptive_optimizers(setting):
    assert "entry h.dtype" in setting.run({"optimizer": {"name": "adam"}}).error


def test_a_model_that_overflows_is_an_error_that_says_what_to_do(setting):
    reduced = setting.run({"optimizer": {"name": "sgd", "lr": 1e38, "momentum": 0}})
    assert "lower the learning rate" in reduced.error


def test_an_update_lost_from_the_bus_is_refused(cases):
    layout = Layout.of([Entry("w", "F32", (3,))])
    data = cases.encode(layout, {"w": np.ones(3)})
    ref = cases.ref_of(data)
    on_bus = ObjectRef(digest=ref.digest, size=ref.size)
    assert ref.size < INLINE_LIMIT
    job = cases.job_of(ref, {"a": (1.0, on_bus), "b": (1.0, on_bus)})
    reduced = Engine(None).run(job, {"a": data})
    assert [(refusal.participant, refusal.code) for refusal in reduced.refused] == [("b", "not-found")]
    assert Engine(None).run(job, {"a": data, "b": data}).outputs["model"].size == ref.size


def test_updates_out_of_order_are_an_error(cases):
    layout = Layout.of([Entry("w", "F32", (3,))])
    ref = cases.ref_of(cases.encode(layout, {"w": np.ones(3)}))
    job = cases.job_of(ref, {"a": (1.0, ref), "b": (1.0, ref)})
    swapped = job.model_copy(update={"updates": job.updates[::-1]})
    assert "sorted by name" in Engine(None).run(swapped).error


def _pending(store):
    return store.abort_uploads("models/")


def test_a_whole_job_that_refuses_an_update_or_fails_leaves_no_upload_open(setting, cases, store, monkeypatch):
    """Of a median nothing is measured before, so the bad number is met after the uploads are open."""
    late = setting.changed("w", 29_999, np.nan)
    assert _one(setting.run({"reduction": {"name": "median"}}, site_1=late))[0] == "site-1"
    assert _pending(store) == 0

    def full(*_):
        raise HanseError(ErrorCode.NO_SPACE, "the store is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_part", full)
        assert "the store is full" in setting.run().error
    assert _pending(store) == 0
    opened = Engine(store).run(cases.job_of(setting.model, setting.refs(), kind=JobKind.OPEN))
    assert opened.uploads
    assert _pending(store) == 1


def test_a_shard_that_refuses_an_update_gives_no_part_of_the_leaves_before_the_bad_one(setting, cases, store):
    refs = setting.refs(site_1=setting.changed("w", 29_999, np.nan))
    job = cases.job_of(setting.model, refs, kind=JobKind.SHARD, uploads={"model": "x"}, leaves=(0, 2))
    job = job.model_copy(update={"uploads": {"model": store.open_upload(f"{job.output_key}/model")}})
    reduced = Engine(store, threads=1).run(job)
    assert (_one(reduced)[0], reduced.parts) == ("site-1", ())


def test_a_shard_refuses_an_update_of_another_size_than_the_model(setting, cases, store):
    """Its OPEN may have been answered for other updates: a size is compared again, and no byte is read for it."""
    for more in (-64, 64):
        data = cases.encode(LAYOUT, setting.good["site-1"])
        data = data[:more] if more < 0 else data + bytes(more)
        refs = setting.refs(site_1=cases.ref_of(data, store, "updates/p/other"))
        job = cases.job_of(setting.model, refs, kind=JobKind.SHARD, uploads={"model": "x"}, leaves=(0, 1))
        job = job.model_copy(update={"uploads": {"model": store.open_upload(f"{job.output_key}/model")}})
        participant, code, reason = _one(Engine(store).run(job))
        assert (participant, code) == ("site-1", "invalid-input")
        assert reason == f"update: {len(data)} bytes, not {LAYOUT.size}"


def test_that_an_update_is_tampered_with_outweighs_and_outlives_what_else_is_seen_in_it():
    other = HanseError(ErrorCode.INVALID_INPUT, "entry w is nan")
    tampered = HanseError(ErrorCode.TAMPERED, "leaf 3")
    for errors in ([other, tampered], [tampered, other], [other, tampered, other]):
        refusals = Refusals()
        assert not refusals
        for error in errors:
            refusals.add("b", error)
        refusals.add("a", other)
        assert [(refused.participant, refused.code) for refused in refusals.listed()] == [
            ("a", "invalid-input"), ("b", "tampered"),
        ]  # fmt: skip
        assert refusals


def test_of_two_reasons_the_first_is_told():
    refusals = Refusals()
    for reason in ("first", "second"):
        refusals.add("a", HanseError(ErrorCode.INVALID_INPUT, reason))
    assert [refused.reason for refused in refusals.listed()] == ["first"]


def test_where_every_update_is_refused_all_are_named_and_nothing_is_made(setting):
    gone = {f"site_{k}": ObjectRef(digest="0" * 64, size=10, key=f"updates/p/gone-{k}") for k in range(3)}
    reduced = setting.run(**gone)
    assert (reduced.error, reduced.outputs) == ("", {})
    assert [refusal.participant for refusal in reduced.refused] == ["site-0", "site-1", "site-2"]


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT])
def test_a_store_that_is_away_is_no_fault_of_a_participant(setting, store, monkeypatch, code):
    open_range = store.open_range

    def away(key, *where):
        if key.startswith("updates/"):
            raise HanseError(code, f"object {key}: the store does not answer")
        return open_range(key, *where)

    monkeypatch.setattr(store, "open_range", away)
    with pytest.raises(HanseError) as caught:
        setting.run()
    assert caught.value.code is code


def test_a_state_of_another_layout_is_an_error_of_the_job(setting, cases, store):
    layout = Layout.of([Entry("w", "F32", (30_000,))])
    model = cases.ref_of(cases.encode(layout, cases.random_arrays(layout, 1)), store, "models/p/w")
    refs = {"a": (1.0, cases.ref_of(cases.encode(layout, cases.random_arrays(layout, 2)), store, "updates/p/w"))}
    momentum = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}}
    [name] = [
        each for each in Engine(store).run(cases.job_of(model, refs, strategy=momentum)).outputs if each != "model"
    ]
    for shape, label in (((30_001,), "w"), ((30_000,), "v")):
        other = Layout.of([Entry(label, "F32", shape)])
        state = cases.ref_of(cases.encode(other, cases.random_arrays(other, 3)), store, "models/p/state")
        reduced = Engine(store).run(cases.job_of(model, refs, strategy=momentum, state={name: state}))
        assert reduced.error == f"state {name}: its layout is not the model's"


def test_a_defect_of_the_engine_is_raised_and_not_told_as_the_jobs(setting, store, monkeypatch):
    def defect(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(store, "put_part", defect)
    with pytest.raises(RuntimeError, match="a defect"):
        setting.run()
