"""Reductions on a device that torch knows (here its processor): the same bits as numpy's, or the device is left."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import JobKind
from hanse_fabric.telemetry.catalogue import DEVICE_INFO
from hanse_fabric.tensors.digest import leaf_count
from hanse_learning import on_device
from hanse_learning.exact_tensors import combined
from hanse_learning.on_device import OnDevice, differences, open_device
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.strategy import Strategy, build_strategy
from hanse_reduction.arithmetic import Processor, choose_arithmetic
from hanse_reduction.engine import Engine

SECTIONS = {
    "mean": {},
    "median": {"reduction": {"name": "median"}},
    "trimmed": {"reduction": {"name": "trimmed_mean", "fraction": 0.2}, "sign_mask": {"tau": 0.4}},
    "bulyan": {"reduction": {"name": "bulyan", "byzantine": 1}},
    "krum": {"reduction": {"name": "multi_krum", "byzantine": 2}, "optimizer": {"name": "sgd", "momentum": 0.9}},
    "clipped": {"reduction": {"name": "norm_clipping", "norm": 30.0}},
}
ADAPTIVE = {"optimizer": {"name": "yogi"}, "sign_mask": {"tau": 0.4}}


@pytest.fixture(scope="module")
def device():
    return open_device("torch-cpu")


@pytest.fixture
def job(cases, store, small_leaves):
    """Jobs over seven updates of all types and rules; about 300 kB, five leaves."""
    layout = cases.mixed_layout(10_000)
    update = lambda k: cases.ref_of(cases.encode(layout, cases.random_arrays(layout, k)), store, f"updates/p/{k}")  # noqa: E731
    refs = {f"site-{k}": (1.0 + k, update(k)) for k in range(7)}
    model = cases.ref_of(cases.encode(layout, cases.random_arrays(layout, 99)), store, "models/p/0")
    return lambda section: cases.job_of(model, refs, strategy=section)


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_device_makes_the_processors_bits_and_is_recorded(section, job, cases, store, device):
    plain = Engine(store).run(job(section))
    there = Engine(store, arithmetic=device).run(job(section))
    assert plain.outputs.keys() == there.outputs.keys()
    assert {name: ref.digest for name, ref in plain.outputs.items()} == {
        name: ref.digest for name, ref in there.outputs.items()
    }
    assert (plain.error, plain.device, there.device, there.warning) == ("", None, "torch-cpu", None)


def test_a_first_model_is_taken_as_it_is_and_no_device_is_said_to_have_made_it(cases, store, device):
    layout = cases.mixed_layout(100)
    ref = cases.ref_of(cases.encode(layout, cases.random_arrays(layout, 1)), store, "updates/p/1")
    adopted = Engine(store, arithmetic=device).run(cases.job_of(None, {"site": (1.0, ref)}))
    assert (adopted.error, adopted.device, list(adopted.outputs)) == ("", None, ["model"])


def test_adaptive_optimizers_move_the_model_on_the_processor_so_their_bits_are_the_same_too(cases, device):
    strategy, rng = build_strategy(ADAPTIVE), np.random.default_rng(0)
    weights = np.full(7, 1 / 7)
    rows = [rng.standard_normal(5000).astype(np.float32) for _ in range(7)]
    made = []
    for arithmetic in (Processor(), device):
        model = np.ones(5000, np.float32)
        state = {name: np.full(5000, value, np.float32) for name, value in strategy.optimizer.state.items()}
        for round_ in (1, 2):
            arithmetic.apply(strategy, model, rows, weights, state, round_)
        made.append([model, *(state[name] for name in sorted(state))])
    assert all(np.array_equal(a, b) for a, b in zip(*made, strict=True))


def test_shards_made_on_a_device_and_on_processors_are_one_model(job, cases, store, device):
    asked = job(SECTIONS["trimmed"])
    whole = Engine(store).run(asked).outputs["model"]
    engines = itertools.cycle([Engine(store, arithmetic=device), Engine(store)])

    class Replicas:
        def run(self, each):
            return next(engines).run(each)

    closed = cases.sharded(
        Replicas(), asked.model_copy(update={"output_key": "models/p/x"}), [0, 1, 2, leaf_count(whole.size)]
    )
    assert closed.outputs["model"].digest == whole.digest


def test_a_device_that_fails_in_the_middle_is_left_and_the_owner_is_told(job, store, monkeypatch):
    plain = Engine(store).run(job({})).outputs["model"].digest
    calls = itertools.count()
    original = OnDevice._reduced

    def fail_later(self, *given):
        if next(calls) >= 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB\nand more")
        return original(self, *given)

    failing = OnDevice("cpu", "cuda:0 X")
    monkeypatch.setattr(OnDevice, "_reduced", fail_later)
    reduced = Engine(store, threads=1, arithmetic=failing).run(job({}))
    assert reduced.outputs["model"].digest == plain
    assert reduced.warning == "cuda:0 X failed (CUDA out of memory. Tried to allocate 20 MiB): the processor is used"
    after = Engine(store, arithmetic=failing).run(job(SECTIONS["median"]))
    assert (after.error, after.device) == ("", None)
    assert after.warning == reduced.warning


def test_a_device_of_other_bits_is_not_used(monkeypatch):
    original = combined
    monkeypatch.setattr(
        on_device, "combined", lambda *given: torch.nextafter(made := original(*given), torch.full_like(made, 1e30))
    )
    with pytest.raises(
        HanseError, match=r"torch-cpu: other bits than the processor's in \{'reduction': \{'name': 'bulyan', "
    ) as caught:
        open_device("torch-cpu")
    assert caught.value.code is ErrorCode.NO_DEVICE
    assert "median" in caught.value.message


def test_the_test_of_a_device_covers_every_dtype_and_kind_of_number():
    block = np.concatenate([on_device._drawn(np.random.default_rng(0), dtype) for dtype in (np.float32, np.float16)])
    assert np.isfinite(block).all()
    assert ((block == 0) & np.signbit(block)).any()
    assert differences(OnDevice("cpu", "again")) == []


def test_a_device_that_cannot_be_had_leaves_the_processor_and_a_warning_for_the_owner(job, store):
    # The tests' torch is built without CUDA.
    chosen = choose_arithmetic("cuda:1")
    assert isinstance(chosen, Processor)
    reduced = Engine(store, arithmetic=chosen).run(job({}))
    assert reduced.warning == (
        f"HANSE_REDUCE_DEVICE is cuda:1, but torch sees no such device, and torch {torch.__version__} is built "
        "without CUDA: the processor is used"
    )
    assert choose_arithmetic("auto").warning == choose_arithmetic("cpu").warning == ""
    assert DEVICE_INFO.value(service="aggregator", device="cpu") == 1


def test_noise_is_made_on_the_processor(device):
    private = object.__new__(PrivateMean)
    assert not device.takes(Strategy(private, build_strategy({}).optimizer))
    assert device.takes(build_strategy({}))


def test_adopting_a_first_model_says_nothing_of_devices(job, cases, store, device):
    asked = job({})
    alone = asked.model_copy(update={"model": None, "updates": asked.updates[:1], "kind": JobKind.WHOLE})
    assert Engine(store, arithmetic=device).run(alone).device is None


def test_an_aggregator_at_rest_has_no_torch():
    text = (
        "import sys\n"
        "import hanse_aggregator.service, hanse_reduction.engine\n"
        "from hanse_reduction.arithmetic import choose_arithmetic\n"
        "choose_arithmetic('cpu')\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"
