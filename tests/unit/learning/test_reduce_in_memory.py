"""`hanse_learning.reduce`: forms of input, bits that do not depend on threads, torch tensors, what is refused."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import hanse_learning
from hanse_fabric.errors import HanseError
from hanse_learning.in_memory import ServerState
from hanse_learning.on_arrays import NumpyArrays
from hanse_learning.on_tensors import TorchTensors
from hanse_learning.server import buffers as buffer_rules
from hanse_learning.server.config import ReductionConfig

SECTIONS = {
    "mean": {},
    "avgm": {"optimizer": {"name": "sgd"}},
    "feddyn": {"optimizer": {"name": "feddyn", "share": 0.5}},
    "adam": {"optimizer": {"name": "adam"}},
    "flower": {"optimizer": {"name": "adam", "flower_compat": True}},
    "yogi": {"optimizer": {"name": "yogi"}, "sign_mask": {"tau": 0.4}},
    "adagrad": {"optimizer": {"name": "adagrad"}, "sign_mask": {"tau": 0.7}},
    "median": {"reduction": {"name": "median"}},
    "trimmed_mean": {"reduction": {"name": "trimmed_mean", "fraction": 0.2}},
    "geometric_median": {"reduction": {"name": "geometric_median"}},
    "krum": {"reduction": {"name": "krum", "byzantine": 2}},
    "multi_krum": {"reduction": {"name": "multi_krum", "byzantine": 2}, "sign_mask": {"tau": 0.4}},
    "bulyan": {"reduction": {"name": "bulyan", "byzantine": 2}},
    "norm_clipping": {"reduction": {"name": "norm_clipping", "norm": 3.0}},
    "fednova": {"reduction": {"name": "fednova"}},
    "overlap_mean": {"reduction": {"name": "overlap_mean"}, "optimizer": {"name": "look_ahead"}},
    "jump": {
        "reduction": {"name": "overlap_mean", "jump_start": True},
        "optimizer": {"name": "look_ahead", "jump_start": True},
    },
    "qfedavg": {"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}},
}
INFO = {
    "normalizer": [1.0 + k for k in range(11)],
    "first_loss": [0.1 + k for k in range(11)],
    "jump_score": [0.1 + 0.1 * (k % 7) for k in range(11)],
}
BUFFERS = {"m": "average", "v": ("pool_variance", "m")}


def _model(seed, columns=600):
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((3, columns)).astype(np.float32), "d": rng.standard_normal(columns // 3),
        "m": rng.standard_normal(7).astype(np.float32), "v": rng.random(7).astype(np.float32),
        "n": rng.integers(0, 2**60, 2),
    }  # fmt: skip


def _two_rounds(section, model, updates, **more):
    state = None
    for _ in range(2):
        model, state = hanse_learning.reduce(
            section, model, updates, range(1, 12), state, info=INFO, buffers=BUFFERS, **more
        )
    return model, state


@pytest.mark.parametrize("name", SECTIONS)
def test_tensors_give_the_result_of_arrays_to_rounding(name):
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def tensors(arrays):
        return {entry: torch.from_numpy(array).to(device) for entry, array in arrays.items()}

    updates = [_model(k) for k in range(11)]
    made, state = _two_rounds(SECTIONS[name], _model(99), updates)
    found, kept = _two_rounds(SECTIONS[name], tensors(_model(99)), [tensors(update) for update in updates])
    assert kept.round == state.round == 2
    for entry, array in made.items():
        assert found[entry].device.type == device
        np.testing.assert_allclose(found[entry].cpu().numpy(), array, 2e-5, 2e-6)
    for each, arrays in state.arrays.items():
        for entry, array in arrays.items():
            np.testing.assert_allclose(kept.arrays[each][entry].cpu().numpy(), array, 2e-5, 2e-6)


@pytest.mark.parametrize("name", SECTIONS)
def test_threads_do_not_change_a_bit_and_nothing_given_is_changed(name, monkeypatch):
    monkeypatch.setattr("hanse_learning.in_memory.BLOCK", 500)
    updates, model = [_model(k) for k in range(11)], _model(99)
    one, state = _two_rounds(SECTIONS[name], model, updates)
    two, other = _two_rounds(SECTIONS[name], model, updates, threads=3)
    for entry, array in one.items():
        assert two[entry].tobytes() == array.tobytes()
        assert model[entry].tobytes() == _model(99)[entry].tobytes()
        assert all(update[entry].tobytes() == _model(k)[entry].tobytes() for k, update in enumerate(updates))
    assert state.arrays.keys() == other.arrays.keys()


def test_reduce_takes_one_array_a_list_or_a_mapping_alike():
    model, updates = _model(9)["w"], [_model(k)["w"] for k in range(3)]
    alone, _ = hanse_learning.reduce({}, model, updates, [1, 2, 3])
    listed, _ = hanse_learning.reduce({}, [model], [[update] for update in updates], [1, 2, 3])
    named, _ = hanse_learning.reduce({}, {"w": model}, [{"w": update} for update in updates], [1, 2, 3])
    assert alone.tobytes() == listed[0].tobytes() == named["w"].tobytes()
    assert alone.shape == model.shape


def test_buffers_are_reduced_by_their_rules_from_those_who_are_chosen():
    updates = [_model(k) for k in range(11)]
    made, _ = hanse_learning.reduce(SECTIONS["krum"], _model(99), updates, buffers=BUFFERS)
    chosen = [k for k in range(11) if np.allclose(made["w"], _model(99)["w"] + updates[k]["w"])]
    assert len(chosen) == 1
    np.testing.assert_array_equal(made["m"], updates[chosen[0]]["m"])
    made, _ = hanse_learning.reduce({}, _model(99), updates, buffers=BUFFERS)
    expected = np.empty(7, np.float32)
    shares = np.full(11, 1 / 11)
    buffer_rules.pool_variance(
        [update["v"] for update in updates], [update["m"] for update in updates], shares, expected
    )
    np.testing.assert_array_equal(made["v"], expected)
    assert made["n"].tolist() == np.max([update["n"] for update in updates], axis=0).tolist()


def test_half_precision_is_moved_in_single():
    model = np.full(4, 1000, np.float16)
    made, _ = hanse_learning.reduce({}, model, [np.full(4, 0.5, np.float16)] * 3)
    assert (made.dtype, made.tolist()) == (np.float16, [1000.5] * 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"updates": []}, "updates"),
        ({"updates": [np.zeros(3), np.zeros(4)]}, r"updates\[1\]"),
        ({"updates": [np.zeros(3), np.zeros(3, np.float32)]}, "float32"),
        ({"updates": [np.zeros(3), np.array([0, np.nan, 0])]}, r"updates\[1\], entry 0: .* finite"),
        ({"updates": [np.array([0, np.inf, 0]), np.zeros(3)], "strategy": SECTIONS["median"]}, r"updates\[0\]"),
        ({"updates": [np.zeros(3), -np.array([0, np.inf, 0])], "strategy": SECTIONS["adam"]}, r"updates\[1\]"),
        ({"updates": [np.zeros(3), {"w": np.zeros(3)}]}, "entries"),
        ({"updates": [np.zeros(3), "update"]}, "str"),
        ({"weights": [1]}, "weights"),
        ({"weights": [1, 0]}, "weights"),
        ({"weights": [1, float("inf")]}, "weights"),
        ({"info": {"first_loss": [1]}, "strategy": SECTIONS["qfedavg"]}, "first_loss"),
        ({"buffers": {"0": "mean"}}, "buffers"),
        ({"buffers": {"0": "pool_variance"}}, "buffers"),
        (
            {"strategy": {"reduction": {"name": "krum", "byzantine": 1}}},
            "updates: 2 is not 5 or more, which krum takes",
        ),
        ({"strategy": {"reduction": {"name": "trimmed_mean", "fraction": 0.5}}}, "fraction"),
        ({"updates": [np.full(3, 1.7e308)] * 2, "model": np.full(3, 1.7e308)}, "new model"),
    ],
)
def test_reduce_refuses_arrays_that_do_not_fit_and_names_them(change, named):
    given = {"strategy": {}, "model": np.zeros(3), "updates": [np.zeros(3)] * 2, **change}
    with pytest.raises(HanseError, match=named):
        hanse_learning.reduce(**given)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_model_of_empty_arrays_or_of_buffers_alone_is_reduced_by_every_strategy(name):
    empty, _ = hanse_learning.reduce(SECTIONS[name], np.zeros((0, 3)), [np.zeros((0, 3))] * 11, info=INFO)
    assert empty.shape == (0, 3)
    buffers, _ = hanse_learning.reduce(SECTIONS[name], {"n": np.array(1)}, [{"n": np.array(7)}] * 11, info=INFO)
    assert buffers["n"].tolist() == 7
    tensors, _ = hanse_learning.reduce(SECTIONS[name], torch.zeros(0), [torch.zeros(0)] * 11, info=INFO)
    assert tensors.shape == (0,)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_updates_may_be_one_array_with_a_row_for_each(kind):
    rows = np.arange(12.0).reshape(3, 4)
    made, _ = hanse_learning.reduce({}, kind(np.zeros(4)), kind(rows))
    assert made.tolist() == rows.mean(axis=0).tolist()


@pytest.mark.parametrize("huge", [1e308, 1.7e308])
def test_weights_near_the_largest_number_count_as_their_share(huge):
    made, _ = hanse_learning.reduce({}, np.zeros(2), [np.zeros(2), np.ones(2), np.ones(2)], [huge, huge / 2, huge / 2])
    assert made.tolist() == pytest.approx([0.5, 0.5])


ADAM = {"optimizer": {"name": "adam"}}
MOMENTS = {"momentum": {"0": np.zeros(3)}, "second_moment": {"0": np.zeros(3)}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"updates": np.array(1.0)}, r"updates: .* is not a sequence"),
        ({"updates": {"a": np.zeros(3)}}, r"updates: .* is not a sequence"),
        ({"updates": 3}, r"updates: .* is not a sequence"),
        ({"model": np.array(["a", "b"])}, r"model, entry 0: '<U1' is not float16, float32, float64"),
        ({"model": np.array([None])}, r"model, entry 0: 'object' is not float16"),
        ({"model": np.zeros(3, complex)}, r"model, entry 0: 'complex128' is not float16"),
        ({"model": np.zeros(3, np.longdouble)}, r"model, entry 0: 'float128' is not float16"),
        ({"model": np.zeros(3, ">f8")}, r"model, entry 0: '>f8' is not float16"),
        ({"model": torch.zeros(3, dtype=torch.complex64)}, r"model, entry 0: 'torch.complex64' is not float16"),
        ({"model": torch.zeros(3, dtype=torch.float64)}, r"updates\[0\].0: .* is not"),
        ({"weights": ["a", "b"]}, r"weights: .* is not 2 positive numbers"),
        ({"weights": 3}, r"weights: 3 is not 2 positive numbers"),
        ({"info": {"normalizer": ["a", "b"]}}, r"info\.normalizer: .* is not 2 numbers"),
        ({"info": {"normalizer": 3}}, r"info\.normalizer: .* is not 2 numbers"),
        ({"buffers": {"mean": "average"}}, r"buffers\.mean: .* is not an entry of the model, \['0'\]"),
        ({"buffers": {"0": ("pool_variance", "mean")}}, r"buffers\.0: .* entry of the model of the same shape"),
        ({"buffers": {"0": "average"}, "model": np.zeros(3, int), "updates": [np.zeros(3, int)] * 2},
         r"buffers\.0: 'average' is not keep_newest, for int64"),
        ({"strategy": ADAM, "state": "before"}, r"state: 'before' is not what the call before returned"),
        ({"strategy": ADAM, "state": {"momentum": {}}}, r"state: .* is not what the call before returned"),
        ({"strategy": ADAM, "state": ServerState(1, MOMENTS | {"momentum": {"0": np.zeros(4)}})},
         r"state\.momentum\.0: 'float64 \(4,\)' is not float64 \(3,\), as in the model"),
        ({"strategy": ADAM, "state": ServerState(1, MOMENTS | {"momentum": {"0": np.zeros(3, np.float32)}})},
         r"state\.momentum\.0: 'float32 \(3,\)' is not float64"),
        ({"strategy": ADAM, "state": ServerState(1, MOMENTS | {"momentum": {"0": torch.zeros(3).double()}})},
         r"state\.momentum\.0: .* is not float64 \(3,\), as in the model"),
    ],
)  # fmt: skip
def test_what_reduce_cannot_compute_is_refused_naming_the_argument(change, named):
    given = {"strategy": {}, "model": np.zeros(3), "updates": [np.zeros(3)] * 2, **change}
    with pytest.raises(HanseError, match=named):
        hanse_learning.reduce(**given)


def test_a_strategy_that_takes_more_updates_than_there_are_is_refused():
    with pytest.raises(HanseError, match=r"updates: 6 is not 7 or more, which bulyan takes"):
        hanse_learning.reduce({"reduction": {"name": "bulyan", "byzantine": 1}}, np.zeros(3), [np.zeros(3)] * 6)


def test_weights_that_a_strategy_makes_of_no_numbers_are_refused():
    class Wild(ReductionConfig):
        name: str = "wild"

        def reweigh(self, totals, weights, info):
            return weights * np.nan

        def combine(self, updates, weights, out):
            out[...] = 0

    with pytest.raises(HanseError, match=r"weights: .* is not 2 finite numbers from the strategy"):
        hanse_learning.reduce(Wild(), np.zeros(3), [np.zeros(3)] * 2)


def test_state_of_another_strategy_is_refused():
    _, state = hanse_learning.reduce({}, np.zeros(3), [np.ones(3)])
    with pytest.raises(HanseError, match="momentum"):
        hanse_learning.reduce({"optimizer": {"name": "adam"}}, np.zeros(3), [np.ones(3)], state=state)


def test_importing_the_package_loads_neither_numpy_nor_torch_and_arrays_load_no_torch():
    script = (
        "import sys, hanse_learning; print(sorted({'numpy', 'torch'} & set(sys.modules)));"
        "import numpy; hanse_learning.reduce({}, numpy.zeros(2), [numpy.ones(2)]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.parametrize(("backend", "array"), [(NumpyArrays(1, 8), np.ones(3)), (TorchTensors(), torch.ones(3))])
def test_a_buffer_by_an_unknown_rule_is_refused_by_name_and_not_pooled(backend, array):
    with pytest.raises(HanseError, match=r"buffers: .*hearsay.*average, keep_newest or pool_variance"):
        backend.buffer("hearsay", [array], [array], np.ones(1), array)
