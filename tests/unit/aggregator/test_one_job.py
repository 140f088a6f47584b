"""A job of small updates: what it refuses, what it says of itself, and that it stops."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import JobKind, ObjectRef
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.messages.reduction_jobs import MOST_WARNING
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_reduction import engine as engine_module
from hanse_reduction.arithmetic import Processor
from hanse_reduction.engine import READERS, Engine
from hanse_reduction.plan import Refusals
from unit.aggregator.masked_round import MaskedRound

SMALL = Layout.of([Entry("w", "F32", (3,))])
LARGE = Layout.of([Entry("w", "F32", (40_000,))])
MOMENTUM = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}}


@pytest.fixture
def job(cases):
    """Jobs over updates of ones, twos and so on to a model of zeros, or to none."""

    def make(names=("a", "b"), *, layout=SMALL, store=None, model=True, **more):
        def ref(name, number):
            data = cases.encode(layout, {"w": np.full(layout.entries[0].shape, number)})
            return cases.ref_of(data, store, f"updates/p/{name}" if number else "models/p/0")

        refs = {name: (1.0, ref(name, 1.0 + k)) for k, name in enumerate(names)}
        return cases.job_of(ref("model", 0.0) if model else None, refs, **more)

    return make


def test_why_an_update_is_refused_is_told_in_at_most_500_letters():
    refusals = Refusals()
    refusals.add("a", HanseError(ErrorCode.INVALID_INPUT, "x" * 501))
    assert [len(refused.reason) for refused in refusals.listed()] == [500]


def test_a_first_model_is_adopted_under_a_strategy_that_needs_more_updates_than_one(job, cases):
    krum = {"reduction": {"name": "krum", "byzantine": 2}}
    adopted = Engine(None).run(job(["a"], model=False, strategy=krum))
    assert adopted.error == ""
    assert cases.decode(SMALL, cases.bytes_of(adopted.outputs["model"], None))["w"].tolist() == [1.0] * 3
    assert "krum" in Engine(None).run(job(["a"], strategy=krum)).error


def test_a_first_model_is_adopted_as_it_is_also_where_updates_are_encoded(job):
    plain, encoded = (Engine(None).run(job(["a"], model=False, **more)) for more in ({}, {"codec": [{"name": "zstd"}]}))
    assert (encoded.error, encoded.refused, encoded.outputs) == ("", (), plain.outputs)


@pytest.mark.parametrize("who", ["a", "b", "c"])
def test_a_number_that_not_all_updates_bring_is_nobodys(job, who):
    asked = job("abc")
    updates = tuple(
        update if update.participant == who else update.model_copy(update={"info": {"steps": 2.0}})
        for update in asked.updates
    )
    reduced = Engine(None).run(asked.model_copy(update={"updates": updates}))
    assert (reduced.error, reduced.outputs) == ("", Engine(None).run(asked).outputs)


def test_a_state_that_is_longer_than_the_model_is_an_error(job, cases):
    def state(more):
        return {"momentum": cases.ref_of(cases.encode(SMALL, {"w": np.zeros(3)}) + more)}

    assert Engine(None).run(job(strategy=MOMENTUM, state=state(b""))).error == ""
    error = Engine(None).run(job(strategy=MOMENTUM, state=state(bytes(4)))).error
    assert error == "state momentum: its layout is not the model's"


def test_in_a_masked_sum_nothing_is_encoded(tmp_path):
    masked = MaskedRound(tmp_path, None, SMALL)
    error = Engine(None).run(masked.job(codec=({"name": "float16"},))).error
    assert error.startswith("codec: ")
    assert "absent in a masked sum" in error


@pytest.mark.parametrize(
    ("foreign", "code"),
    [
        ({"strategy_digest": "b" * 64}, True), ({"optimizer_digest": "b" * 64}, True),
        ({"codec_digests": {"mine": "b" * 64}}, True), ({}, False),
    ],
    ids=["a strategy", "an optimizer", "a codec", "Hanse's own alone"],
)  # fmt: skip
def test_an_error_of_a_job_with_somebodys_plug_in_is_told_with_its_code(job, foreign, code):
    swapped = job().updates[::-1]
    reduced = Engine(None).run(job().model_copy(update={"updates": swapped, **foreign}))
    assert reduced.error
    assert (reduced.code is not None) is code


def test_a_job_tells_what_the_device_warns_of_in_so_many_letters(job):
    told = Engine(None, arithmetic=Processor("w" * (MOST_WARNING + 1))).run(job())
    assert (told.error, told.warning) == ("", "w" * MOST_WARNING)
    assert Engine(None).run(job()).warning is None


def test_a_job_that_is_stopped_is_cancelled_and_leaves_no_upload(job, store, small_leaves):
    stop = threading.Event()
    stop.set()
    with pytest.raises(HanseError) as caught:
        Engine(store).run(job(layout=LARGE, store=store), stop=stop)
    assert caught.value.code is ErrorCode.CANCELLED
    assert store.abort_uploads("models/") == 0


def test_a_shard_that_has_fewer_updates_than_were_measured_tells_who_is_missing(job, cases, store, small_leaves):
    clipped = {"reduction": {"name": "norm_clipping", "norm": 1.0}}
    asked, engine = job("abc", layout=LARGE, store=store, strategy=clipped), Engine(store)
    uploads = engine.run(asked.model_copy(update={"kind": JobKind.OPEN})).uploads
    measured = engine.run(asked.model_copy(update={"kind": JobKind.MEASURE, "leaves": (0, 3)})).outputs.values()
    shard = {"kind": JobKind.SHARD, "leaves": (0, 3), "uploads": uploads, "measured": tuple(measured)}
    assert engine.run(asked.model_copy(update=shard)).parts
    short = asked.updates[1].model_copy(update={"ref": cases.ref_of(bytes(9), store, "updates/p/short")})
    updates = (asked.updates[0], short, asked.updates[2])
    reduced = engine.run(asked.model_copy(update=shard | {"updates": updates}))
    assert [refusal.participant for refusal in reduced.refused] == ["b"]
    assert (reduced.error, reduced.parts) == ("", ())


def test_of_updates_that_cannot_be_measured_no_model_is_begun(job, cases, store, small_leaves, monkeypatch):
    asked = job("ab", layout=LARGE, store=store, strategy={"reduction": {"name": "norm_clipping", "norm": 1.0}})
    bad = cases.ref_of(cases.encode(LARGE, {"w": np.full(40_000, np.nan)}), store, "updates/p/bad")
    updates = (asked.updates[0], asked.updates[1].model_copy(update={"ref": bad}))

    def begun(*_):
        raise AssertionError("an upload is opened")

    monkeypatch.setattr(store, "open_upload", begun)
    reduced = Engine(store).run(asked.model_copy(update={"updates": updates}))
    assert [refusal.participant for refusal in reduced.refused] == ["b"]


@pytest.mark.parametrize("leaves", [(1, 1), (2, 1), (0, 4), (-1, 1)])
def test_a_shard_of_other_leaves_than_the_models_is_an_error(job, store, small_leaves, leaves):
    asked = job(layout=LARGE, store=store, kind=JobKind.SHARD, uploads={"model": "x"})
    assert leaf_count(LARGE.size) == 3
    reduced = Engine(store).run(asked.model_copy(update={"leaves": leaves}))
    assert reduced.error.startswith(f"leaves: {leaves} is not a range within the model's 3 leaves")


def test_a_shard_without_an_upload_for_each_output_is_an_error_that_names_it(job, store, small_leaves):
    asked = job(layout=LARGE, store=store, kind=JobKind.SHARD, uploads={"model": "x"}, strategy=MOMENTUM)
    reduced = Engine(store).run(asked.model_copy(update={"leaves": (0, 3)}))
    assert reduced.error.startswith("uploads: ['model'] is not an upload for each of momentum")


def test_of_a_shard_all_parts_are_told_by_output_and_number(job, store, small_leaves):
    asked = job(layout=LARGE, store=store, strategy=MOMENTUM)
    uploads = Engine(store).run(asked.model_copy(update={"kind": JobKind.OPEN})).uploads
    assert set(uploads) == {"model", "momentum"}
    shard = asked.model_copy(update={"kind": JobKind.SHARD, "uploads": uploads, "leaves": (0, 3)})
    for threads in (1, 3):
        parts = Engine(store, threads=threads).run(shard).parts
        told = [(part.output, part.number) for part in parts]
        assert told == [(name, number) for name in ("model", "momentum") for number in (1, 2, 3)]


def test_no_more_headers_are_read_at_once_than_there_are_readers(job, store, monkeypatch):
    pools, pool = [], ThreadPoolExecutor

    def noted(count, name):
        pools.append(count)
        return pool(count, name)

    monkeypatch.setattr(engine_module, "ThreadPoolExecutor", noted)
    for count in (2, READERS + 1):
        assert Engine(store).run(job([f"site-{k:02}" for k in range(count)], store=store)).error == ""
    assert pools == [2, READERS]
    assert Engine(None).threads == 2, "memory is reckoned for so many where nobody says otherwise"


@pytest.fixture
def full(store, monkeypatch):
    """Call it, and the store takes no more parts."""

    def refuse(*_):
        raise HanseError(ErrorCode.NO_SPACE, "the store is full")

    return lambda: monkeypatch.setattr(store, "put_part", refuse)


def test_a_job_that_fails_late_tells_no_norm_for_the_next_round(job, store, small_leaves, full):
    body = {"placement": "central", "mechanism": "gaussian", "noise_multiplier": 1.0, "adaptive_clip": 0.5}
    terms = PrivacyTerms(privacy=Privacy.model_validate(body), rounds=1, round=1, active=4)
    seed = base64.b64encode(bytes(range(32))).decode()
    private = {"reduction": {"name": "private_mean", "terms": terms.model_dump(mode="json"), "seed": seed}}
    asked = job("abcd", layout=LARGE, store=store, strategy=private)
    assert Engine(store).run(asked).clip is not None
    full()
    reduced = Engine(store).run(asked)
    assert "the store is full" in reduced.error
    assert reduced.clip is None


def test_a_masked_job_that_fails_late_tells_no_tally(tmp_path, store, small_leaves, full):
    masked = MaskedRound(tmp_path, store, LARGE)
    assert Engine(store).run(masked.job()).tally is not None
    full()
    reduced = Engine(store).run(masked.job())
    assert "the store is full" in reduced.error
    assert reduced.tally is None


def test_a_masked_sum_is_walked_in_batches_of_adjacent_leaves_for_each_thread(tmp_path, store, small_leaves):
    masked = MaskedRound(tmp_path, store, LARGE)
    run = engine_module._Run(Engine(store, threads=2), masked.job(), None, threading.Event())
    plain, summed = SimpleNamespace(masked=None), SimpleNamespace(masked=object())
    assert run._batches(plain, range(3)) == [range(k, k + 1) for k in range(3)]
    assert run._batches(summed, range(3)) == [range(2), range(2, 3)]
    assert run._batches(summed, range(40)) == [range(at, at + 8) for at in range(0, 40, 8)]


def test_of_a_lost_update_that_was_small_its_site_is_told(job):
    asked = job()
    lost = ObjectRef(digest="0" * 64, size=asked.updates[0].ref.size)
    first = asked.updates[0].model_copy(update={"ref": lost})
    reduced = Engine(None).run(asked.model_copy(update={"updates": (first, asked.updates[1])}))
    assert [(refusal.participant, refusal.code) for refusal in reduced.refused] == [("a", "not-found")]
    assert Engine(None).run(asked).refused == ()


class Card(Processor):
    """Says that it is a device."""

    label = "a card"

    def takes(self, _strategy):
        return True


def test_a_device_is_named_by_what_it_has_combined_alone(job):
    assert Engine(None, arithmetic=Card()).run(job()).device == "a card"
    assert Engine(None, arithmetic=Card()).run(job(["a"], model=False)).device is None
    assert Engine(None).run(job()).device is None


def test_a_strategy_that_is_other_code_than_the_coordinators_ends_the_job(job):
    error = Engine(None).run(job(strategy_digest="b" * 64)).error
    assert "b" * 64 in error


def test_an_exception_of_a_plug_in_is_told_as_the_jobs_and_another_is_raised(job, monkeypatch):
    def defect(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(engine_module, "make_plan", defect)
    with pytest.raises(RuntimeError, match="a defect"):
        Engine(None).run(job())
    monkeypatch.setattr(engine_module, "blamed", lambda _job, error: f"mine.py, line 3 ({type(error).__name__})")
    reduced = Engine(None).run(job())
    assert (reduced.error, reduced.code) == ("mine.py, line 3 (RuntimeError): a defect", "invalid-input")


@pytest.mark.parametrize(("kind", "what"), [(JobKind.ENCODE, "codec: "), (JobKind.DELTA, "state: ")])
def test_a_model_that_travels_is_made_by_a_job_of_its_own_which_says_what_it_lacks(job, kind, what):
    reduced = Engine(None).run(job(kind=kind))
    assert reduced.error.startswith(what)


def test_a_model_is_encoded_and_told_under_that_name(job):
    reduced = Engine(None).run(job(kind=JobKind.ENCODE, codec=({"name": "float16"},)))
    assert (reduced.error, list(reduced.outputs)) == ("", ["encoded"])


def shards(masked, store, cut):
    """The answer of the CLOSE of a masked job in shards; `cut` changes the job before it is closed."""
    job, engine = masked.job(), Engine(store)
    uploads = engine.run(job.model_copy(update={"kind": JobKind.OPEN})).uploads
    whole = {"uploads": uploads, "leaves": (0, leaf_count(masked.layout.size))}
    parts = engine.run(job.model_copy(update=whole | {"kind": JobKind.SHARD})).parts
    cut()
    return engine.run(masked.job(kind=JobKind.CLOSE, uploads=uploads, parts=parts))


def test_a_masked_sum_in_shards_ends_in_the_model_and_the_tally(tmp_path, store, small_leaves):
    masked = MaskedRound(tmp_path, store, LARGE)
    closed = shards(masked, store, lambda: None)
    whole = Engine(store).run(masked.job())
    assert (closed.error, closed.refused) == ("", ())
    assert (closed.outputs["model"], closed.tally) == (whole.outputs["model"], whole.tally)


def test_of_a_masked_sum_with_a_lost_tally_no_model_is_put_together(tmp_path, store, small_leaves):
    masked = MaskedRound(tmp_path, store, LARGE)
    closed = shards(masked, store, lambda: masked.tallies.update({"site-001": None}))
    assert [refusal.participant for refusal in closed.refused] == ["site-001"]
    assert closed.outputs == {}


def test_the_tallies_of_an_evaluation_are_summed_alone(tmp_path):
    masked = MaskedRound(tmp_path, None, SMALL)
    job = masked.job(masks=masked.masks().model_copy(update={"update": None}))
    tallies = tuple(each.model_copy(update={"ref": each.tally, "tally": None}) for each in job.updates)
    reduced = Engine(None).run(job.model_copy(update={"kind": JobKind.TALLY, "updates": tallies, "model": None}))
    assert (reduced.error, reduced.outputs, reduced.tally.weight) == ("", {}, sum(masked.weights))


def test_sums_of_masks_that_came_by_the_bus_are_found_by_their_digest(tmp_path):
    masked = MaskedRound(tmp_path, None, SMALL)
    masks = masked.masks()
    on_bus = {ref.digest: bytes(ref.inline) for ref in (masks.update, masks.tally)}
    bare = {name: getattr(masks, name).model_copy(update={"inline": None}) for name in ("update", "tally")}
    job = masked.job(masks=masks.model_copy(update=bare))
    assert Engine(None).run(job, None, on_bus).outputs == Engine(None).run(masked.job()).outputs
    assert "is not on the bus" in Engine(None).run(job).error


def test_tallies_out_of_order_are_an_error(tmp_path):
    job = MaskedRound(tmp_path, None, SMALL).job(kind=JobKind.TALLY)
    reduced = Engine(None).run(job.model_copy(update={"updates": job.updates[::-1]}))
    assert "sorted by name" in reduced.error
