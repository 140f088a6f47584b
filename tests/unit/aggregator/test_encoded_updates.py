"""Encoded updates through the engine: the same bits as of the tensor files that they stand for; what is not as the job
says, or was tampered with, is refused by its name."""

from __future__ import annotations

import dataclasses
import hashlib
import tracemalloc
from io import BytesIO

import numpy as np
import pytest
import zstandard

from hanse_fabric.errors import HanseError
from hanse_fabric.messages import JobKind
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.file import decode_tensors, encode_tensors
from hanse_fabric.tensors.layout import Rule
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.codecs import frames
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.reading import decode
from hanse_learning.codecs.writing import encode
from hanse_reduction.encoded import open_encoded
from hanse_reduction.engine import Engine
from hanse_reduction.sources import Input, MemorySource

CHAIN = [{"name": "top_k", "fraction": 0.2}, {"name": "float16"}, {"name": "zstd"}]
STRATEGIES = {
    "mean": {},
    "median": {"reduction": {"name": "median"}},
    "krum": {"reduction": {"name": "krum", "byzantine": 1}},
    "momentum": {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}},
}
COUNT = 5


@pytest.fixture
def few(small_leaves, monkeypatch):
    """Frames of 1,000 elements, that lie across leaves."""
    monkeypatch.setattr(frames, "FRAME_ELEMENTS", 1000)
    frames.frames_of.cache_clear()
    yield
    frames.frames_of.cache_clear()


def encoded_bytes(layout, arrays, chain=CHAIN, seed=5):
    file = BytesIO()
    encode(file, layout, arrays, build_chain(chain), seed=seed)
    return file.getvalue()


def dense(layout, data, chain=CHAIN):
    """The arrays that encoded bytes stand for."""
    opened = open_encoded(Input(ref_of_bytes(data), MemorySource(data)), layout, build_chain(chain))
    return decode_tensors(opened.read(0, layout.size))[1]


def setup(cases, store, n, chain=CHAIN):
    layout = cases.mixed_layout(n)
    model = cases.ref_of(cases.encode(layout, cases.random_arrays(layout, 0)), store, "models/p/start")
    sent = {f"site-{k}": encoded_bytes(layout, cases.random_arrays(layout, 1 + k), chain) for k in range(COUNT)}
    stored = {name: cases.ref_of(data, store, f"updates/p/{name}") for name, data in sent.items()}
    refs = {name: (1.0 + k, stored[name]) for k, name in enumerate(stored)}
    return layout, model, sent, refs


def sections(chain=CHAIN):
    return build_chain(chain).sections


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_encoded_updates_give_the_bits_of_what_they_stand_for_whole_and_in_shards(cases, store, few, strategy):
    layout, model, sent, refs = setup(cases, store, 9000)
    assert leaf_count(layout.size) > 2
    job = cases.job_of(model, refs, strategy=strategy, codec=sections())
    plain = {
        name: (weight, cases.ref_of(encode_tensors(layout, dense(layout, sent[name])), store, f"updates/q/{name}"))
        for name, (weight, _) in refs.items()
    }
    expected = Engine(store, threads=1).run(cases.job_of(model, plain, strategy=strategy))
    whole = Engine(store, threads=2).run(job)
    assert (whole.error, whole.refused, expected.error) == ("", (), "")
    assert {name: each.digest for name, each in whole.outputs.items()} == {
        name: each.digest for name, each in expected.outputs.items()
    }
    if strategy != STRATEGIES["krum"]:
        parts = cases.sharded(Engine(store), job, [0, 1, leaf_count(layout.size)])
        assert parts.outputs["model"].digest == expected.outputs["model"].digest


def test_of_a_large_model_fewer_bytes_are_read_than_one_plain_update_has(cases, store, few):
    layout, model, _, refs = setup(cases, store, 40_000)
    reduced = Engine(store, threads=1).run(cases.job_of(model, refs, codec=sections()))
    assert reduced.refused == ()
    # The parameters of five sites, and the model once; buffers travel as they are.
    assert reduced.bytes_read < layout.size * (1 + COUNT * 0.7)


def refusals(cases, store, layout, model, refs, data, chain=CHAIN):
    """Reduce with the first site's update replaced by `data`; what is refused, by participant."""
    refs = {**refs, "site-0": (1.0, cases.ref_of(data, store, "updates/p/other"))}
    found = Engine(store).run(cases.job_of(model, refs, codec=sections(chain)))
    assert found.error == ""
    return {refusal.participant: refusal for refusal in found.refused}


def test_what_is_no_update_as_the_job_says_is_refused_and_named(cases, store):
    layout, model, sent, refs = setup(cases, store, 300)
    arrays = cases.random_arrays(layout, 1)
    other = cases.mixed_layout(301)
    good = sent["site-0"]
    bad = {
        "it does not begin as one": encode_tensors(layout, arrays),
        "the job's codec.up: top_k": encoded_bytes(layout, arrays, [{"name": "float16"}]),
        "in another layout than the model's": encoded_bytes(other, cases.random_arrays(other, 1)),
        "its form is version": good[:7] + b"9" + good[8:],
        "its table describes": good + b"x",
        "within its table": good[:400],
        "within its head": good[:40],
        "its chain is written in version 2, 1 is known here": of_format(good, 2),
        "are needed": resigned(layout, good, lambda packed: packed_anew(packed, lambda frame: frame[:-1])),
        "bytes too many": resigned(layout, good, lambda packed: packed_anew(packed, lambda frame: frame + b"\0")),
        "a frame is not of zstd": resigned(layout, good, lambda packed: b"\0" * len(packed)),
        "many were expected": resigned(layout, good, lambda _: bomb()),
    }
    for reason, data in bad.items():
        found = refusals(cases, store, layout, model, refs, data)
        assert set(found) == {"site-0"}, reason
        assert reason.replace("many were expected", "at most were expected") in found["site-0"].reason


@pytest.mark.parametrize(
    ("field", "value"), [("seed", -1), ("seed", 2**63), ("seed", 0.5), ("frames", 0.5), ("size", "9"), ("chain", "ab")]
)
def test_a_head_with_other_values_than_a_site_writes_is_refused_and_costs_the_others_nothing(
    cases, store, field, value
):
    chain = [{"name": "random_k", "fraction": 0.2}]
    layout, model, sent, refs = setup(cases, store, 300, chain)
    start = frames.head_length(sent["site-0"][:12])
    head = frames.read_head(sent["site-0"][:start])
    changed = dataclasses.replace(head, **{field: value}).encode() + sent["site-0"][start:]
    assert set(refusals(cases, store, layout, model, refs, changed, chain)) == {"site-0"}


def of_format(data, number):
    """An encoded update whose head says that its chain is written in another version."""
    start = frames.head_length(data[:12])
    text = data[12:start].replace(b'"format":1', f'"format":{number}'.encode())
    return data[:8] + len(text).to_bytes(4, "little") + text + data[start:]


def packed_anew(packed, change):
    """A frame that was changed before it was packed."""
    return zstandard.ZstdCompressor().compress(change(zstandard.ZstdDecompressor().decompress(packed)))


def bomb():
    """Few bytes that become 64 MiB."""
    return zstandard.ZstdCompressor().compress(bytes(64 << 20))


def resigned(layout, data, change):
    """An encoded update with its first frame changed, and its table made anew: a site signs what it likes."""
    start = frames.head_length(data[:12])
    count = len(frames.frames_of(layout))
    stop = start + count * frames.ROW.itemsize
    table = np.frombuffer(bytearray(data[start:stop]), frames.ROW)
    first = data[stop : stop + int(table["length"][0])]
    made = change(first)
    table["length"][0], table["digest"][0] = len(made), np.void(hashlib.sha256(made).digest())
    return data[:start] + table.tobytes() + made + data[stop + len(first) :]


def longer_than_it_can_be(layout, data):
    """An encoded model whose table tells too many bytes of its first frame."""
    start = frames.head_length(data[:12])
    return data[:start] + (1 << 30).to_bytes(4, "little") + data[start + 4 :]


def test_a_store_that_changes_a_byte_of_a_frame_or_of_the_table_is_found_out(cases, store):
    _, model, sent, refs = setup(cases, store, 300)
    for at in (700, len(sent["site-0"]) - 3):
        changed = bytearray(sent["site-0"])
        changed[at] ^= 1
        store.put("updates/p/site-0", bytes(changed))
        found = Engine(store).run(cases.job_of(model, refs, codec=sections()))
        assert [(each.participant, each.code) for each in found.refused] == [("site-0", "tampered")]


def test_an_encoded_update_of_more_bytes_than_were_announced_is_refused(cases, store):
    _, model, sent, refs = setup(cases, store, 300)
    store.put("updates/p/site-0", sent["site-0"] + b"more")
    found = Engine(store).run(cases.job_of(model, refs, codec=sections()))
    assert [(each.participant, each.code) for each in found.refused] == [("site-0", "too-large")]
    assert "were announced" in found.refused[0].reason


def test_a_frame_that_is_told_longer_than_it_can_be_is_refused_before_a_byte_of_it_is_held(cases, store):
    """A site may send as many bytes as the model has; all in one frame, they would be held whole for a few values."""
    layout = cases.mixed_layout(1_000_000)
    chain = [{"name": "float16"}, {"name": "zstd"}]
    good = encoded_bytes(layout, {entry.name: np.zeros(entry.shape, entry.numpy) for entry in layout}, chain)
    long = resigned(layout, good, lambda _: bytes(12_000_000))
    assert len(long) < layout.size
    update = Input(ref_of_bytes(long), MemorySource(long))
    tracemalloc.start()
    try:
        with pytest.raises(HanseError, match=r"its table says that frame 0 has 12000000 bytes, at most \d+ were"):
            open_encoded(update, layout, build_chain(chain)).read(layout.data_start, 1000)
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()


def test_a_frame_of_numbers_that_cannot_be_packed_is_within_its_bound(cases, store):
    layout = cases.mixed_layout(200_000)
    draw = np.random.default_rng(1)
    noise = {entry.name: draw.standard_normal(entry.shape).astype(entry.numpy) for entry in layout}
    data = encoded_bytes(layout, noise, [{"name": "zstd", "level": 1}])
    for entry in layout:
        assert dense(layout, data, [{"name": "zstd"}])[entry.name].tobytes() == noise[entry.name].tobytes()


def test_an_unknown_codec_of_a_job_is_an_error_that_lists_the_known_ones(cases, store):
    _, model, _, refs = setup(cases, store, 300)
    found = Engine(store).run(cases.job_of(model, refs, codec=({"name": "nothing"},)))
    assert "codec.up[0]" in found.error
    assert "top_k" in found.error


DOWN = [{"name": "bfloat16"}, {"name": "zstd"}]


def encoding(cases, model, **more):
    job = cases.job_of(model, {}, kind=JobKind.ENCODE, codec=sections(DOWN), **more)
    return job.model_copy(update={"strategy": {}})


@pytest.mark.parametrize("n", [100, 9000])
def test_a_model_that_goes_down_is_encoded_alike_each_time_and_decoded_without_its_layout(cases, store, few, n):
    layout, model, _, _ = setup(cases, store, n)
    plain = cases.random_arrays(layout, 0)
    made = [Engine(store).run(encoding(cases, model)).outputs["encoded"] for _ in range(2)]
    assert made[0].digest == made[1].digest
    data = np.frombuffer(cases.bytes_of(made[0], store), np.uint8)
    assert data.nbytes < layout.size
    found, arrays = decode(data, build_chain(DOWN), most=layout.size)
    assert found.header == layout.header
    for entry in layout:
        same = arrays[entry.name].tobytes() == plain[entry.name].tobytes()
        assert same or (entry.rule is Rule.PARAMETER and np.allclose(arrays[entry.name], plain[entry.name], rtol=2**-8))


def test_a_model_that_is_not_encoded_as_the_task_says_is_refused_at_the_site(cases, store):
    layout, model, sent, _ = setup(cases, store, 300)
    good = cases.bytes_of(Engine(store).run(encoding(cases, model)).outputs["encoded"], store)
    bad = {
        "encoded model's size": (good, layout.size - 1),
        "an update, whose layout the hub knows": (sent["site-0"], layout.size),
        "it does not begin as one": (encode_tensors(layout, cases.random_arrays(layout, 0)), layout.size),
        "as its table says": (good + b"x", layout.size),
        "its table says that frame 0 has": (longer_than_it_can_be(layout, good), layout.size),
    }
    for reason, (data, most) in bad.items():
        with pytest.raises(HanseError, match=reason if "update" not in reason else "layout"):
            decode(np.frombuffer(data, np.uint8), build_chain(DOWN), most=most)
    with pytest.raises(HanseError, match="encoded"):
        decode(np.frombuffer(good[: len(good) // 2], np.uint8), build_chain(DOWN), most=layout.size)


def test_a_model_that_the_store_has_changed_is_not_encoded(cases, store):
    _, model, _, _ = setup(cases, store, 300)
    changed = bytearray(store.get(model.key, limit=1 << 30))
    changed[-1] ^= 1
    store.put(model.key, bytes(changed))
    assert "does not have the digest" in Engine(store).run(encoding(cases, model)).error
