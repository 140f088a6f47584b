"""The layers' kernels for GPUs, run by Triton's interpreter on the processor: they are the plain forms, and step aside.

`test_fused_layers` runs these in a process of their own. Where there is a GPU, they try it instead, run by name:

    pytest tests/unit/learning_layers/interpreted_layers.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

from hanse_learning.site.example_gradients import by_layers
from hanse_learning.site.layers import KernelNorm2d, KNConv2d, kernel_norm, kn_conv
from hanse_learning.site.layers.fused import chosen, functions, fused_form
from hanse_learning.site.layers.statistics import UnitStatistics
from hanse_learning.site.layers.windows import Windows
from unit.learning_layers.test_kernel_norm import cases, drawn

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
CLOSE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
WINDOWS = Windows((3, 2), (2, 1), (1, 0), (1, 1))


def compare(kind: chosen.Kind, given_: list[Tensor], mask: Tensor | None, units: UnitStatistics, groups: int) -> None:
    """Outcome and gradients of the fused form, beside the plain form's in float64 of the same numbers."""
    made = []
    for form, device, dtype in (
        (chosen.form_of(kind).apply, DEVICE, given_[0].dtype), (chosen.plain_form(kind), "cpu", torch.float64),
    ):  # fmt: skip
        x, *filters = wanted = [each.detach().to(device, dtype).requires_grad_() for each in given_]
        filters = [*filters, None][:2] if kind == "convolution" else []
        keep = None if mask is None else mask.to(device)
        found = form(x, keep, *filters, units, *([groups] if kind == "convolution" else []))
        out = found[0] if isinstance(found, tuple) else found
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(device, dtype)
        made.append([each.cpu() for each in (out.detach(), *torch.autograd.grad(out, wanted, weights))])
    for ours, theirs in zip(*made, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, given_[0].dtype)
        largest = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(ours.double() / largest, theirs / largest, rtol=0, atol=CLOSE[given_[0].dtype])


NUMBERS = st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16])


@settings(max_examples=8, deadline=None, derandomize=True)
@given(cases(), NUMBERS)
def test_a_fused_convolution_is_the_plain_one_with_gradients(case: dict, dtype: torch.dtype) -> None:
    x, mask = drawn(case)
    generator = torch.Generator().manual_seed(case["seed"])
    filters = [torch.randn(case["outputs"], case["inputs"] // case["groups"], *case["kernel"], generator=generator)]
    filters += [torch.randn(case["outputs"], generator=generator)] if case["bias"] else []
    windows = Windows(case["kernel"], case["stride"], case["padding"], case["dilation"])
    units = UnitStatistics(windows, 1 / (1 - case["p"]), 1e-2)
    compare("convolution", [each.to(dtype) for each in (x, *filters)], mask, units, case["groups"])


@settings(max_examples=3, deadline=None, derandomize=True)
@given(cases(), NUMBERS)
def test_fused_units_are_the_plain_ones_with_gradients(case: dict, dtype: torch.dtype) -> None:
    x, mask = drawn(case | {"space": tuple(size + 3 for size in case["space"]), "batch": min(case["batch"], 2)})
    windows = Windows(case["kernel"], case["stride"], case["padding"], (1,) * case["axes"])
    compare("units", [x.to(dtype)], mask, UnitStatistics(windows, 1 / (1 - case["p"]), 1e-2), 1)


def test_a_trial_of_what_takes_several_programs_agrees() -> None:
    assert chosen.disagreement.__wrapped__("convolution", DEVICE, torch.float32, Windows((2,), (1,), (1,), (1,))) == ""


def test_a_large_mean_costs_the_fused_statistics_no_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 8, 5, 5, generator=generator, dtype=torch.float64) + 3000
    units = UnitStatistics(Windows((3, 3), (1, 1), (0, 0), (1, 1)), 1.0, 1e-5)
    out = functions.FusedUnits.apply(x.float().to(DEVICE), None, units)[0].cpu()
    torch.testing.assert_close(out.double(), kernel_norm.units_side_by_side(x, None, units), rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", ["convolution", "units"])
def test_second_derivatives_of_a_fused_form_are_the_plain_ones(kind: chosen.Kind) -> None:
    found = []
    for form in (chosen.form_of(kind).apply, chosen.plain_form(kind)):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(1, 2, 4, 3, generator=generator).to(DEVICE).requires_grad_()
        filters = [torch.randn(3, 2, 3, 2, generator=generator).to(DEVICE), None] if kind == "convolution" else []
        made = form(x, None, *filters, UnitStatistics(WINDOWS, 1.0, 1e-2), *([1] if filters else []))
        out = made[0] if isinstance(made, tuple) else made
        (slope,) = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(found[0] / found[1].abs().max(), found[1] / found[1].abs().max(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["convolution", "units"])
def test_no_zeros_are_made_for_statistics_that_have_no_gradient(kind: chosen.Kind) -> None:
    """Each would be a kernel more, and small batches wait for those."""
    seen: list[Any] = []

    class Watched(chosen.form_of(kind)):  # type: ignore[misc]
        @staticmethod
        def backward(ctx: Any, given: Tensor, *unused: Any) -> Any:
            seen.extend(unused)
            return chosen.form_of(kind).backward(ctx, given, *unused)

    x = torch.ones(1, 2, 4, 3, device=DEVICE, requires_grad=True)
    filters = [torch.ones(3, 2, 3, 2, device=DEVICE), None] if kind == "convolution" else []
    made = Watched.apply(x, None, *filters, UnitStatistics(WINDOWS, 1.0, 1e-2), *([1] if filters else []))
    made[0].sum().backward()
    assert seen == [None, None]


def test_single_examples_gradients_are_the_same_with_fused_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(KNConv2d(2, 4, 3, padding=1), nn.ReLU(), KernelNorm2d(2, 2), KNConv2d(4, 3, 2), nn.Flatten())
    module, x, y = module.to(DEVICE), torch.randn(2, 2, 4, 4).to(DEVICE), torch.tensor([0, 2]).to(DEVICE)
    monkeypatch.setattr(kn_conv, "fused_form", lambda *_where: None)
    monkeypatch.setattr(kernel_norm, "fused_form", lambda *_where: None)
    of_examples = by_layers(module, nn.functional.cross_entropy)
    named = dict(module.named_parameters())
    plain = {name: each.clone() for name, each in of_examples(named, x, y).items()}
    used = []

    def always(kind: chosen.Kind, *_where: object) -> Any:
        used.append(kind)
        return chosen.form_of(kind)

    monkeypatch.setattr(kn_conv, "fused_form", always)
    monkeypatch.setattr(kernel_norm, "fused_form", always)
    fused = of_examples(named, x, y)
    assert used == ["convolution", "units", "convolution"]
    for name, each in plain.items():
        torch.testing.assert_close(fused[name], each, rtol=1e-4, atol=1e-5)


def test_a_form_that_forgets_something_is_found_out_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the mask, of the way back through the statistics, and one that does not compile."""

    class NoMask(functions.FusedConvolution):
        @staticmethod
        def forward(ctx: Any, x: Tensor, _keep: Any, *rest: Any) -> Any:
            return functions.FusedConvolution.forward(ctx, x, None, *rest)

    class Constants(functions.FusedConvolution):
        @staticmethod
        def backward(ctx: Any, given: Tensor, *unused: Tensor) -> Any:
            units = ctx.units
            ctx.units = UnitStatistics(units.windows, 0.0, units.epsilon)
            return functions.FusedConvolution.backward(ctx, given, *unused)

    class NoCompiler(functions.FusedConvolution):
        @staticmethod
        def forward(*_given: Any) -> Any:
            raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nmore")

    said, one = [], Windows((1,), (1,), (0,), (1,))
    for wrong in (NoMask, Constants, NoCompiler):
        monkeypatch.setattr(chosen, "form_of", lambda _kind, wrong=wrong: wrong)
        said.append(chosen.disagreement.__wrapped__("convolution", DEVICE, torch.float32, one))
    assert said[0].startswith("the outcome is")
    assert said[1].startswith("the gradient of x is")
    assert said[2] == "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."
    assert [vars(record)["reason"] for record in caplog.records] == said
    monkeypatch.setattr(chosen, "find_spec", lambda _name: None)
    assert chosen.disagreement.__wrapped__("units", DEVICE, torch.float32, WINDOWS) == "triton is not installed"


def test_the_plain_form_stays_where_there_is_no_gpu_and_under_transformations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "disagreement", lambda *_of: "")  # as a device that was tried says
    assert fused_form("convolution", torch.zeros(2, 3, 4, 4), WINDOWS) is None
    with FakeTensorMode():  # knows CUDA's tensors without a device
        there = torch.empty(2, 3, 4, 4, device="cuda")
        assert fused_form("convolution", there, WINDOWS) is chosen.form_of("convolution")
        assert fused_form("units", there.half(), WINDOWS) is chosen.form_of("units")
        assert fused_form("units", there.double(), WINDOWS) is None
        assert fused_form("units", torch.empty(0, 3, 4, 4, device="cuda"), WINDOWS) is None
        asked = []
        monkeypatch.setattr(kn_conv, "fused_form", lambda *of: asked.append(fused_form(of[0], there, of[2])))
    layer = KNConv2d(3, 2, 2)
    vmap(lambda x: layer(x[None])[0])(torch.zeros(2, 3, 4, 4))
    assert asked == [None]
    monkeypatch.setattr(chosen, "disagreement", lambda *_of: "another outcome")
    assert fused_form("convolution", there, WINDOWS) is None
