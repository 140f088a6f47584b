"""FedTAN: K uneven sites together are batch-norm SGD on their batches together; what is left out breaks it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import Rule
from hanse_learning.config import TrainConfig, check_model
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.entries import arrays_of, entries_of, freeze, load
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.shared_statistics import shared_statistics
from hanse_learning.site.sums import Alone, CountingSums, Floats, Meeting, Sums
from hanse_learning.site.training import train
from hanse_learning.utility import check_utility
from hanse_schemas.job import check_job

MLP = {"name": "mlp", "hidden": [12, 8], "batch_norm": True, "dtype": "float64"}
CNN = {"name": "cnn", "channels": [4, 6], "hidden": 8, "batch_norm": True, "dtype": "float64"}
GN = {"name": "resnet20", "normalization": "group", "groups": 4, "dtype": "float64"}
SIZES = {"a": 5, "b": 9, "c": 1, "d": 17}
Arrays = dict[str, np.ndarray]


def shares(shape: tuple[int, ...] = (6,), sizes: dict[str, int] = SIZES) -> dict[str, Examples]:
    """Sites with one class each, far from each other."""
    rng = np.random.default_rng(7)
    return {
        name: Examples(
            (rng.standard_normal((size, *shape)) * (1 + i) + 2 * i).astype(np.float32), np.full(size, i, np.int64)
        )
        for i, (name, size) in enumerate(sizes.items())
    }


def pooled(data: dict[str, Examples]) -> Examples:
    return Examples(np.concatenate([one.x for one in data.values()]), np.concatenate([one.y for one in data.values()]))


def config(**changes: object) -> TrainConfig:
    body = {"algorithm": {"name": "fedtan"}, "steps": 1, "batch_size": "all", "optimizer": {"name": "sgd", "lr": 0.3}}
    return TrainConfig.model_validate(body | changes)


def run_round(
    model: dict, start: Arrays, data: dict[str, Examples], train_config: TrainConfig, *,
    number: int = 1, sums: Callable[[Meeting, str], Sums] = Meeting.of,
) -> tuple[Arrays, dict[str, Trained]]:  # fmt: skip
    """One round at all sites, each in a thread; their models' means by their examples."""
    checked = check_model(model)
    meeting = Meeting(sorted(data), patience=60)
    problem = Problem(data["a"].x.shape[1:], 4, "classification")
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # the threads' rounds set the same

    def one(name: str) -> tuple[Arrays, Trained]:
        module = build(checked, problem, seed=1)
        entries = entries_of(module, checked.buffers, checked.state, number)
        load(module, start, entries.travelling)
        freeze(module, entries)
        try:
            made = train_round(
                Session(
                    module=module, data=data[name], config=train_config, problem=problem, seed=3, round=number,
                    sums=sums(meeting, name),
                )
            )  # fmt: skip
        except BaseException:
            meeting.withdraw()
            raise
        return arrays_of(module), made

    with ThreadPoolExecutor(len(data)) as pool:
        done = dict(zip(data, pool.map(one, data), strict=True))
    total = sum(len(one) for one in data.values())
    mean = {
        name: np.asarray(sum(done[site][0][name] * (len(data[site]) / total) for site in data))
        if start[name].dtype.kind == "f"
        else done["a"][0][name]
        for name in start
    }
    return mean, {name: made for name, (_, made) in done.items()}


def first(model: dict, shape: tuple[int, ...] = (6,)) -> Arrays:
    return arrays_of(build(check_model(model), Problem(shape, 4, "classification"), seed=1))


def centralized(model: dict, start: Arrays, data: dict[str, Examples], train_config: TrainConfig) -> Arrays:
    problem = Problem(data["a"].x.shape[1:], 4, "classification")
    module = build(check_model(model), problem, seed=1)
    load(module, start, entries_of(module).travelling)
    plain = train_config.model_copy(update={"algorithm": TrainConfig().algorithm})
    train(module, pooled(data), plain, problem, seed=3, on_progress=lambda *_: None)
    return arrays_of(module)


def difference(one: Arrays, other: Arrays, start: Arrays) -> float:
    """Relative to the way from `start`, over all parameters and statistics."""
    names = [name for name in start if start[name].dtype.kind == "f"]
    way = np.concatenate([(other[name] - start[name]).ravel() for name in names])
    return float(np.linalg.norm(np.concatenate([(one[n] - other[n]).ravel() for n in names])) / np.linalg.norm(way))


@pytest.mark.parametrize(("model", "shape"), [(MLP, (6,)), (CNN, (2, 6, 6))])
def test_one_step_of_uneven_sites_is_a_step_on_their_batches_together(model: dict, shape: tuple[int, ...]) -> None:
    data, start = shares(shape), first(model, shape)
    made, told = run_round(model, start, data, config())
    assert difference(made, centralized(model, start, data, config()), start) < 1e-12
    assert {trained.metrics["sums"] for trained in told.values()} == {6.0}


def test_many_steps_go_the_way_of_centralized_training() -> None:
    data, start = shares(), first(MLP)
    ours = theirs = start
    for number in range(1, 31):
        ours, _ = run_round(MLP, ours, data, config(), number=number)
        theirs = centralized(MLP, theirs, data, config())
    assert difference(ours, theirs, start) < 1e-9
    assert ours["norm0.num_batches_tracked"] == theirs["norm0.num_batches_tracked"] == 30


@pytest.mark.parametrize("algorithm", [{"name": "fedtan", "backward": False}, {"name": "fedavg"}])
def test_the_forward_part_alone_and_no_sums_at_all_are_another_step(algorithm: dict) -> None:
    sizes = {"a": 5, "b": 9, "c": 2, "d": 17}
    data, start = shares(sizes=sizes), first(MLP)
    made, _ = run_round(MLP, start, data, config(algorithm=algorithm))
    assert difference(made, centralized(MLP, start, data, config()), start) > 0.1


def test_equal_weights_for_unequal_batches_are_another_step() -> None:
    data, start = shares(), first(MLP)

    class Evened:
        """Gives every site one and the same weight."""

        def __init__(self, inner: Sums, examples: int) -> None:
            self._inner, self._examples = inner, examples

        def sum(self, key: str, values: Floats) -> Floats:
            return self._inner.sum(key, values / self._examples)

        def end(self) -> None:
            self._inner.end()

    made, _ = run_round(MLP, start, data, config(), sums=lambda meeting, name: Evened(meeting.of(name), SIZES[name]))
    assert difference(made, centralized(MLP, start, data, config()), start) > 0.1


def test_statistics_and_their_gradients_are_by_the_papers_formulas() -> None:
    data = shares()
    whole = pooled(data).x.astype(np.float64)
    gamma, beta = np.linspace(0.5, 2, 6), np.linspace(-1, 1, 6)
    u = np.random.default_rng(3).standard_normal(whole.shape)  # of each example's own loss
    meeting = Meeting(sorted(data))
    said: dict[str, Floats] = {}

    class Heard:
        def __init__(self, name: str) -> None:
            self._sums = meeting.of(name)

        def sum(self, key: str, values: Floats) -> Floats:
            said[key] = self._sums.sum(key, values)
            return said[key]

        def end(self) -> None:
            self._sums.end()

    bounds = np.cumsum([0, *SIZES.values()])
    slices = {name: slice(*bounds[i : i + 2]) for i, name in enumerate(SIZES)}

    def one(name: str) -> tuple[np.ndarray, nn.BatchNorm1d]:
        layer = nn.BatchNorm1d(6).double()
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(gamma))
            layer.bias.copy_(torch.from_numpy(beta))
        y = torch.from_numpy(whole[slices[name]]).requires_grad_()
        with shared_statistics(layer, Heard(name), len(y)):
            (layer(y) * torch.from_numpy(u[slices[name]])).sum(1).mean().backward()
        assert y.grad is not None
        return y.grad.numpy(), layer

    with ThreadPoolExecutor(4) as pool:
        done = dict(zip(SIZES, pool.map(one, SIZES), strict=True))
    n = len(whole)
    mu = whole.mean(0)  # (2a)
    sig2 = ((whole - mu) ** 2).mean(0)  # (2b)
    iv = 1 / np.sqrt(sig2 + 1e-5)
    by_sig2 = (u * gamma * (whole - mu) * -0.5 * iv**3).mean(0)  # (25)
    by_mu = (u * -gamma * iv).mean(0)  # (28)
    np.testing.assert_allclose(said["l0-mean"][:-1] / n, mu, rtol=1e-12)
    assert said["l0-mean"][-1] == n
    np.testing.assert_allclose(said["l0-var"] / n, sig2, rtol=1e-12)
    np.testing.assert_allclose(said["l0-grad"] / n, np.concatenate([by_mu, by_sig2]), rtol=1e-10, atol=1e-13)
    for name, (by_y, layer) in done.items():
        size, own = SIZES[name], slices[name]
        expected = (u[own] * gamma * iv + by_mu + by_sig2 * 2 * (whole[own] - mu)) / size  # (62)
        np.testing.assert_allclose(by_y, expected, rtol=1e-9, atol=1e-13)
        assert layer.weight.grad is not None
        np.testing.assert_allclose(layer.weight.grad.numpy(), (u[own] * (whole[own] - mu) * iv).mean(0), rtol=1e-9)
        assert layer.running_var is not None
        np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * sig2 * n / (n - 1), rtol=1e-12)


def test_fedtan_of_one_site_is_plain_batch_norm() -> None:
    data, start = {"a": shares()["d"]}, first(MLP)
    made, _ = run_round(MLP, start, data, config(steps=3), sums=lambda _meeting, _name: Alone())
    assert difference(made, centralized(MLP, start, data, config(steps=3)), start) < 1e-12


def test_fedtan_shares_statistics_in_the_first_local_step_only() -> None:
    data, start = shares(sizes={"a": 5, "b": 9}), first(MLP)
    once, told = run_round(MLP, start, data, config(steps=1))
    made, later = run_round(MLP, start, data, config(steps=4))
    assert told["a"].metrics["sums"] == later["a"].metrics["sums"] == 6.0
    assert later["a"].metrics["steps"] == 4.0
    assert difference(once, made, start) > 1e-3


def test_fedtan_with_group_norm_sums_nothing_and_equals_pooled_training() -> None:
    data, start = shares((3, 8, 8), {"a": 2, "b": 4}), first(GN, (3, 8, 8))
    made, told = run_round(GN, start, data, config())
    assert told["a"].metrics["sums"] == 0.0
    assert difference(made, centralized(GN, start, data, config()), start) < 1e-12


def test_frozen_statistics_are_used_as_they_are_from_their_round_on() -> None:
    model = MLP | {"state": [{"layers": "statistics", "keep": "frozen", "from_round": 3}]}
    data, made = shares(sizes={"a": 5, "b": 9}), first(MLP)
    statistics = [name for name in made if "running" in name]
    sums = []
    for number in range(1, 5):
        before = made
        made, told = run_round(model, before, data, config(steps=2), number=number)
        sums.append(told["a"].metrics["sums"])
        held = all(np.allclose(made[name], before[name], rtol=1e-14, atol=0) for name in statistics)
        assert held == (number >= 3)
        assert not np.array_equal(made["hidden0.weight"], before["hidden0.weight"])
    assert sums == [6.0, 6.0, 0.0, 0.0]


def test_in_single_precision_a_large_mean_costs_the_variance_little() -> None:
    rng = np.random.default_rng(0)
    batches = [torch.from_numpy((1e3 + rng.standard_normal((64, 2))).astype(np.float32)) for _ in range(2)]
    meeting = Meeting(["0", "1"])

    def one(number: int) -> nn.BatchNorm1d:
        layer = nn.BatchNorm1d(2, momentum=1.0)
        with shared_statistics(layer, meeting.of(str(number)), 64):
            layer(batches[number])
        return layer

    with ThreadPoolExecutor(2) as pool:
        layer, other = pool.map(one, range(2))
    expected = torch.cat(batches).double().var(0)
    assert layer.running_var is not None
    assert other.running_var is not None
    np.testing.assert_allclose(layer.running_var.numpy(), expected.numpy(), rtol=1e-5)
    assert torch.equal(layer.running_var, other.running_var)


def test_a_site_whose_partner_never_comes_gets_an_error_and_keeps_its_model() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    meeting = Meeting(["a", "b"])
    threading.Timer(0.05, meeting.withdraw).start()
    with pytest.raises(HanseError) as raised, shared_statistics(module, meeting.of("a"), 2):
        module(torch.zeros(2, 3))
    assert raised.value.code is ErrorCode.QUORUM
    module(torch.zeros(2, 3))  # its layers are its own again


def test_statistics_that_are_not_finite_are_a_failure_of_the_site_that_has_them() -> None:
    module = nn.BatchNorm1d(4)
    with pytest.raises(HanseError) as raised, shared_statistics(module, CountingSums(Alone()), 2):
        module(torch.full((2, 4), float("nan")))
    assert raised.value.code is ErrorCode.TRAINING_FAILED


def test_wide_layers_are_summed_in_parts() -> None:
    said: list[tuple[str, int]] = []

    class Heard(Alone):
        def sum(self, key: str, values: Floats) -> Floats:
            said.append((key, len(values)))
            return values

    assert len(CountingSums(Heard()).sum("l0-mean", np.ones(30_000))) == 30_000
    assert said == [("l0-mean", 12_288), ("l0-mean-1", 12_288), ("l0-mean-2", 5_424)]


def test_a_session_without_sums_is_refused_for_fedtan() -> None:
    with pytest.raises(HanseError) as raised:
        run_round(MLP, first(MLP), {"a": shares()["d"]}, config(), sums=lambda _meeting, _name: None)  # type: ignore[arg-type, return-value]
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_a_round_of_resnet_20_exchanges_what_the_paper_counts() -> None:
    model = {"name": "resnet20", "normalization": "batch"}
    start = arrays_of(build(check_model(model), Problem((3, 8, 8), 10, "classification"), seed=1))
    data = shares((3, 8, 8), {"a": 2, "b": 3})
    problem = Problem((3, 8, 8), 10, "classification")
    checked, meeting = check_model(model), Meeting(["a", "b"])

    def one(name: str) -> Trained:
        module = build(checked, problem, seed=1)
        load(module, start, entries_of(module).travelling)
        return train_round(
            Session(module=module, data=data[name], config=config(), problem=problem, seed=3, sums=meeting.of(name))
        )

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(one, data))
    layout = entries_of(build(checked, problem, seed=1)).travelling
    values = sum(int(np.prod(entry.shape)) for entry in layout if entry.rule is not Rule.KEEP_NEWEST)
    weight = 1  # the batch's examples come with the first sum
    assert {(made.metrics["sums"], made.metrics["summed_values"]) for made in told} == {(57.0, 2.0 * 1_376 + weight)}
    counted = (values + told[0].metrics["summed_values"] - weight) * (5 + 1) * 4
    # Wang, Shi and Chang (2023), Tables 3 and 4: 3L + 1 rounds, 6.2679 MB with a broadcast of the hub.
    assert told[0].metrics["sums"] + 1 == 3 * 19 + 1 == 58
    assert counted == (269_722 + 3 * 1_376) * (5 + 1) * 4 == 6_572_400
    assert f"{counted / 2**20:.4f}" == "6.2679"


@pytest.mark.parametrize(
    ("train", "holds"),
    [
        ({"algorithm": "fedtan", "steps": 1, "batch_size": "all"}, True),
        ({"algorithm": {"name": "fedtan", "backward": False}, "steps": 1, "batch_size": "all"}, False),
        ({"algorithm": "fedtan", "steps": 2, "batch_size": "all"}, False),
        ({"algorithm": "fedfgd"}, False),
    ],
)
def test_batch_norm_preserves_utility_with_fedtan_and_its_backward_part_alone(train: dict, holds: bool) -> None:
    job = check_job({"rounds": 1, "model": {"name": "mlp", "batch_norm": True}, "train": train})
    assert all(finding.ok for finding in check_utility(job)) == holds


class Unusual(nn.Module):
    """Convolutions, a layer that is used twice, one without weights, one without moving averages, a dead channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.twice = nn.BatchNorm2d(3, momentum=None)
        self.bare = nn.BatchNorm2d(3, affine=False)
        self.flat = nn.Linear(3 * 16, 4)
        self.untracked = nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x) * torch.tensor([1.0, 0.0, 2.0], dtype=x.dtype)[:, None, None]
        y = self.bare(torch.tanh(self.twice(torch.relu(self.twice(y)))))
        return self.untracked(self.flat(y.flatten(1)))


def test_layers_of_all_kinds_are_those_of_the_pooled_batch() -> None:
    torch.manual_seed(0)
    start = Unusual().double().state_dict()
    rng = np.random.default_rng(1)
    parts = {
        "a": torch.from_numpy(rng.normal(2, 3, (3, 2, 6, 6))),
        "b": torch.from_numpy(rng.normal(size=(5, 2, 6, 6))),
    }
    meeting = Meeting(list(parts))

    def gradients(name: str | None) -> dict[str, torch.Tensor]:
        module = Unusual().double()
        module.load_state_dict(start)
        x = torch.cat(list(parts.values())) if name is None else parts[name]
        with contextlib.nullcontext() if name is None else shared_statistics(module, meeting.of(name), len(x)):
            (module(x) ** 3).sum(1).mean().backward()
        named = {key: parameter.grad for key, parameter in module.named_parameters() if parameter.grad is not None}
        return named | {key: value.double() for key, value in module.named_buffers()}

    with ThreadPoolExecutor(2) as pool:
        ours = dict(zip(parts, pool.map(gradients, parts), strict=True))
    for name, expected in gradients(None).items():
        mean = (3 * ours["a"][name] + 5 * ours["b"][name]) / 8
        torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-10, msg=name)


def test_local_statistics_come_near_the_pooled_ones_only_where_sites_are_alike() -> None:
    """Property 1: without sums, the deviation falls with the batch where all sites draw from one distribution."""

    def deviation(size: int, *, alike: bool) -> float:
        rng = np.random.default_rng(2)
        data = {
            name: Examples(
                (rng.standard_normal((size, 6)) + (0 if alike else 3 * i)).astype(np.float32), rng.integers(0, 4, size)
            )
            for i, name in enumerate("abc")
        }
        start = first(MLP)
        made, _ = run_round(MLP, start, data, config(algorithm={"name": "fedavg"}))
        return difference(made, centralized(MLP, start, data, config()), start)

    alike = [deviation(size, alike=True) for size in (32, 512, 8192)]
    assert alike[0] > 3 * alike[1] > 9 * alike[2]
    assert deviation(8192, alike=False) > 10 * alike[2]
