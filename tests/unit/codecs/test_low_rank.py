"""Matrices as products of two narrow ones: how near they come, what they weigh, and what no receiver believes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.codecs import factors
from hanse_learning.codecs.at_site import COLUMNS, LEFT_OUT, SiteCodec, read_model
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.factors import LowRank
from hanse_learning.codecs.frames import FRAME_ELEMENTS, ROW, Head, head_length, read_head
from hanse_learning.codecs.writing import encode, encode_from
from hanse_reduction.encoded import open_encoded
from hanse_reduction.sources import Input, MemorySource
from unit.codecs.unit_codecs import decoded_of

LAYOUT = Layout.of([
    Entry("dense.weight", "F32", (500, 300)), Entry("conv.weight", "F32", (16, 8, 3, 3)), Entry("bias", "F32", (500,)),
    Entry("wide", "F32", (1, 400)), Entry("half.weight", "F16", (60, 50)), Entry("mean", "F32", (5,), Rule.AVERAGE),
])  # fmt: skip


def update(seed: int = 0, rank: int | None = None) -> dict[str, np.ndarray]:
    """Normal numbers; or matrices of a rank."""
    draw = np.random.default_rng(seed)
    made = {}
    for entry in LAYOUT:
        values = draw.standard_normal(entry.shape)
        if rank is not None and len(entry.shape) > 1:
            rows = values.reshape(entry.shape[0], -1)
            left, right = draw.standard_normal((len(rows), rank)), draw.standard_normal((rows.shape[1], rank))
            values = (left @ right.T).reshape(entry.shape)
        made[entry.name] = values.astype(entry.numpy)
    return made


def off(found: np.ndarray, true: np.ndarray) -> float:
    """The relative error."""
    return float(np.linalg.norm(found.astype(float) - true) / np.linalg.norm(true.astype(float)))


def chain(rank: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "low_rank", "rank": rank}, *more]


def written(rank: int, arrays: dict[str, np.ndarray], *more: dict[str, Any]) -> bytes:
    file = BytesIO()
    encode(file, LAYOUT, arrays, build_chain(chain(rank, *more)), seed=3)
    return file.getvalue()


def test_matrices_of_the_rank_arrive_as_they_are_and_what_is_no_matrix_to_the_bit() -> None:
    arrays = update(rank=2)
    data = written(2, arrays)
    back = decoded_of(LAYOUT, data, chain(2))
    for name in ("dense.weight", "conv.weight", "half.weight"):
        assert off(back[name], arrays[name]) < (2e-3 if name == "half.weight" else 1e-5), name
    for name in ("bias", "wide", "mean"):
        assert back[name].tobytes() == arrays[name].tobytes(), name
    numbers = 4 * 2 * (500 + 300) + 4 * 2 * (16 + 72) + 2 * 2 * (60 + 50) + 4 * (500 + 400 + 5)
    # A row of P that two portions need is in both; beside that heads, and 36 bytes and a byte for each portion.
    assert numbers <= len(data) < numbers + 900
    assert len(data) < 0.03 * LAYOUT.size + 4 * 905 + 900


def test_from_round_to_round_a_product_comes_as_near_as_any_of_its_rank() -> None:
    """Vogels et al. (2019), section 3: the former columns are where the next power iteration begins."""
    draw = np.random.default_rng(5)
    left = np.linalg.qr(draw.standard_normal((200, 20)))[0]
    right = np.linalg.qr(draw.standard_normal((150, 20)))[0]
    matrix = ((left * 0.7 ** np.arange(20)) @ right.T).astype(np.float32)
    best = np.sqrt(sum(0.7 ** (2 * n) for n in range(3, 20)) / sum(0.7 ** (2 * n) for n in range(20)))
    layout, built = Layout.of([Entry("w", "F32", (200, 150))]), build_chain(chain(3))
    errors, fresh, columns = [], [], None
    for number in range(12):
        file = BytesIO()
        columns = encode_from(file, layout, {"w": matrix}, built, seed=number, columns=columns).columns
        errors.append(off(decoded_of(layout, file.getvalue(), chain(3))["w"], matrix))
        other = BytesIO()
        encode(other, layout, {"w": matrix}, built, seed=number)
        fresh.append(off(decoded_of(layout, other.getvalue(), chain(3))["w"], matrix))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1.001 * best < errors[0]
    assert min(fresh) > 1.05 * best  # the control: those that begin anew come no nearer


@pytest.mark.parametrize(
    "more", [(), ({"name": "float16"}, {"name": "zstd"}), ({"name": "integers", "bits": 8},)], ids=str
)
def test_with_feedback_all_of_an_update_arrives_in_time(more: tuple[dict[str, Any], ...]) -> None:
    """What is sent of a constant update, over the rounds, is that update: nothing is lost for good."""
    arrays, codec = update(2), SiteCodec(build_chain(chain(4, *more)), error_feedback=True)
    kept: dict[str, Any] = {}
    total = {entry.name: np.zeros(entry.shape) for entry in LAYOUT}
    off_by = []
    for number in range(25):
        data, kept = codec.encoded(LAYOUT, arrays, kept, seed=number)
        for name, values in decoded_of(LAYOUT, data, chain(4, *more)).items():
            total[name] += values
        off_by.append(off(total["conv.weight"], (number + 1) * arrays["conv.weight"]))
        for name, left in kept[LEFT_OUT].items():
            wanted = (number + 1) * arrays[name].astype(float)
            assert off(total[name] + left, wanted) < (2e-3 if name == "half.weight" else 1e-4), name
    assert off_by[-1] < 0.35 * off_by[0]
    assert kept[COLUMNS].keys() == {"dense.weight", "conv.weight", "half.weight"}


def test_any_part_is_decoded_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "_BLOCK", 1000)
    data = written(3, update(1), {"name": "float16"})
    opened = open_encoded(
        Input(ref_of_bytes(data), MemorySource(data)), LAYOUT, build_chain(chain(3, {"name": "float16"}))
    )
    whole = opened.read(0, LAYOUT.size)
    draw = np.random.default_rng(0)
    for _ in range(40):
        start, stop = sorted(int(each) for each in draw.integers(0, LAYOUT.size, 2))
        assert opened.read(start, stop - start) == whole[start:stop]


@pytest.mark.parametrize(
    ("rows", "columns", "width"),
    [
        (500, 300, 4),
        (3, 300, 0),
        (5, 300, 4),
        (1, 400, 0),
        (2, 2, 0),
        (9, FRAME_ELEMENTS, 4),
        (9, FRAME_ELEMENTS + 1, 0),
    ],
)
def test_what_saves_nothing_or_has_too_many_columns_is_sent_as_it_is(rows: int, columns: int, width: int) -> None:
    assert LowRank(4).width(rows, columns) == width


def test_constant_and_empty_and_one_sided_matrices_are_products_of_finite_numbers() -> None:
    layout = Layout.of([
        Entry("zero", "F32", (40, 30)), Entry("same", "F32", (40, 30)), Entry("one", "F32", (40, 30)),
        Entry("none", "F32", (0, 30)),
    ])  # fmt: skip
    arrays = {
        "zero": np.zeros((40, 30), "f4"), "same": np.full((40, 30), 0.25, "f4"), "none": np.zeros((0, 30), "f4"),
        "one": np.zeros((40, 30), "f4"),
    }  # fmt: skip
    arrays["one"][7, 9] = -3.0
    file = BytesIO()
    kept = encode_from(file, layout, arrays, build_chain(chain(2)), seed=1)
    again = BytesIO()
    encode_from(again, layout, arrays, build_chain(chain(2)), seed=2, columns=kept.columns)
    for data in (file.getvalue(), again.getvalue()):
        for name, values in decoded_of(layout, data, chain(2)).items():
            np.testing.assert_allclose(values, arrays[name], atol=1e-6)


def forged(data: bytes, **changes: Any) -> bytes:
    """The update with another head; `packed` stands for the columns."""
    at = head_length(data[:12])
    head = read_head(data[:at])
    packed = changes.pop("packed", None)
    rest = data[at:]
    if packed is not None:
        middle = head.frames * ROW.itemsize
        rest = rest[:middle] + packed + rest[middle + head.columns :]
        changes["columns"] = len(packed)
    fields = {name: getattr(head, name) for name in Head.__dataclass_fields__} | changes
    return Head(**fields).encode() + rest


SIZE = 4 * (2 * 300 + 2 * 72) + 2 * (2 * 50)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": 1 << 40}, "encoded update's columns: .* is not at most"),
        ({"columns": 0}, "the columns of its products ends at byte 0"),
        ({"packed": b""}, "the columns of its products ends at byte 0"),
        ({"packed": bytes(SIZE + 9)}, "has 9 bytes too many"),
        ({"packed": b"\xff" * SIZE}, "not finite numbers, of entry"),
    ],
    ids=["more than there can be", "none announced", "none", "too many", "no numbers"],
)
def test_columns_that_no_site_makes_are_refused_with_what_is_wrong(changes: dict[str, Any], said: str) -> None:
    data = forged(written(2, update()), **changes)
    with pytest.raises(HanseError, match=said):
        decoded_of(LAYOUT, data, chain(2))


def test_columns_where_the_job_has_no_products_are_refused() -> None:
    file = BytesIO()
    encode(file, LAYOUT, update(), build_chain([{"name": "float16"}]), seed=1)
    with pytest.raises(HanseError, match="encoded update's columns: 16 is not at most 0 bytes"):
        decoded_of(LAYOUT, forged(file.getvalue(), packed=bytes(16)), [{"name": "float16"}])


def test_single_values_cannot_be_left_out_of_a_product_nor_a_model_go_down_as_one() -> None:
    with pytest.raises(HanseError, match="a product has no single values to leave out"):
        build_chain([{"name": "top_k", "fraction": 0.1}, {"name": "low_rank"}])
    data = BytesIO()
    encode(data, LAYOUT, update(rank=2), build_chain(chain(2)), seed=1, with_layout=True)
    told = {"codec": {"down": chain(2), "model_size": LAYOUT.size}}
    # Nothing of a job leads here, and it is read all the same.
    assert off(read_model(data.getvalue(), told)[1]["dense.weight"], update(rank=2)["dense.weight"]) < 1e-5
