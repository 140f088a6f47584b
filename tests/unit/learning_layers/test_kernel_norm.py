"""The layers are what the paper defines, whatever the shape, with gradients, and for each example by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import unit.learning_layers.naive_kernel_norm as naive
from hanse_fabric.errors import HanseError
from hanse_learning.site.layers import KernelNorm1d, KernelNorm2d, KernelNorm3d, KNConv1d, KNConv2d, KNConv3d, kn_conv
from hanse_learning.site.layers.unit_dropout import UnitDropout

CONVOLUTIONS = {1: KNConv1d, 2: KNConv2d, 3: KNConv3d}
NORMS = {1: KernelNorm1d, 2: KernelNorm2d, 3: KernelNorm3d}
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-10}}


class Known(nn.Module):
    """A mask that is given, so that two forms of a layer can have the same one."""

    def __init__(self, mask: Tensor | None, p: float) -> None:
        super().__init__()
        self.mask, self.scale = mask, 1 / (1 - p)

    def forward(self, _x: Tensor) -> Tensor | None:
        return self.mask


@st.composite
def cases(draw: st.DrawFn) -> dict:
    axes = draw(st.sampled_from([1, 2, 2, 3]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs = groups * draw(st.integers(1, 2))
    kernel, dilation, padding = each(1, 3), each(1, 2), each(0, 2)
    # The variance of a few values may be next to none, of which float32 has few digits in either form.
    few = inputs * math.prod(kernel) < 8
    dtype = torch.float64 if few else draw(st.sampled_from([torch.float32, torch.float64]))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    space = tuple(max(1, size - 2 * pad + draw(st.integers(0, 3))) for size, pad in zip(least, padding, strict=True))
    return {
        "axes": axes, "kernel": kernel, "stride": each(1, 3), "padding": padding, "dilation": dilation, "space": space,
        "groups": groups, "inputs": inputs, "outputs": groups * draw(st.integers(1, 3)),
        "batch": draw(st.integers(1, 3)), "bias": draw(st.booleans()), "p": draw(st.sampled_from([0.0, 0.3])),
        "dtype": dtype, "seed": draw(st.integers(0, 1000)),
    }  # fmt: skip


def drawn(case: dict) -> tuple[Tensor, Tensor | None]:
    """An input and its mask."""
    generator = torch.Generator().manual_seed(case["seed"])
    shape = (case["batch"], case["inputs"], *case["space"])
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(case["dtype"])
    mask = torch.rand(shape, generator=generator) >= case["p"] if case["p"] else None
    return x + 0.5, mask


def gradients(made: Tensor, *wanted: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, made.numel(), dtype=made.dtype).reshape(made.shape)
    return list(torch.autograd.grad((made * weights).sum(), wanted))


def same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        # Sums of many terms lose digits in proportion to their size, in the reference, too.
        largest = max(1.0, float(b.detach().abs().max()))
        torch.testing.assert_close(a / largest, b / largest, **CLOSE[a.dtype])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(cases())
def test_an_efficient_convolution_equals_the_definition_with_gradients(case: dict) -> None:
    x, mask = drawn(case)
    layer = CONVOLUTIONS[case["axes"]](
        case["inputs"], case["outputs"], case["kernel"], case["stride"], case["padding"], case["dilation"],
        case["groups"], bias=case["bias"], eps=1e-2,
    ).to(case["dtype"])  # fmt: skip
    layer.keep = Known(mask, case["p"])
    x.requires_grad_()
    wanted = [x, layer.weight] + ([layer.bias] if case["bias"] else [])
    ours = layer(x)
    scale = 1 / (1 - case["p"])
    theirs = naive.kn_conv(x, layer.weight, layer.bias, layer.windows, case["groups"], mask, scale, layer.eps)
    same([ours, *gradients(ours, *wanted)], [theirs, *gradients(theirs, *wanted)])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(cases())
def test_an_efficient_normalization_equals_the_definition_with_gradients(case: dict) -> None:
    space = tuple(size + 3 for size in case["space"])
    x, mask = drawn(case | {"space": space})
    layer = NORMS[case["axes"]](case["kernel"], case["stride"], case["padding"], eps=1e-2)
    layer.keep = Known(mask, case["p"])
    x.requires_grad_()
    ours = layer(x)
    theirs = naive.kernel_norm(x, layer.windows, mask, 1 / (1 - case["p"]), layer.eps)
    same([ours, *gradients(ours, x)], [theirs, *gradients(theirs, x)])


def test_a_large_output_is_worked_on_in_parts_with_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = KNConv2d(2, 3, 3, padding=1).double(), torch.randn(5, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    wanted = [x, layer.weight, layer.bias]
    whole = gradients(layer(x), *wanted)
    monkeypatch.setattr(kn_conv, "PRODUCT_BYTES", 2 * 3 * 6 * 6 * 8)
    same(gradients(layer(x), *wanted), whole)


def test_the_first_unit_of_one_to_nine_is_what_a_pencil_says() -> None:
    made = KernelNorm2d(2)(torch.arange(1.0, 10).reshape(1, 1, 3, 3))
    assert made.shape == (1, 1, 4, 4)
    expected = torch.tensor([[-2.0, -1.0], [1.0, 2.0]]) / math.sqrt(2.50001)
    torch.testing.assert_close(made[0, 0, :2, :2], expected)


def test_a_constant_unit_becomes_zero_and_filters_of_equal_weights_give_the_bias() -> None:
    assert KernelNorm2d(3)(torch.full((2, 3, 5, 5), 7.0)).abs().max() == 0
    layer = KNConv2d(3, 4, 3)
    with torch.no_grad():
        layer.weight.fill_(0.3)
        torch.testing.assert_close(layer(torch.randn(2, 3, 5, 5)), layer.bias[:, None, None].expand(2, 4, 3, 3),
                                   atol=1e-4, rtol=0)  # fmt: skip


def test_scaling_and_shifting_the_input_changes_nothing() -> None:
    layer = KNConv2d(3, 4, 3, eps=1e-12).double()
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(5 * x + 3), layer(x), atol=1e-8, rtol=1e-8)


def test_padding_may_differ_before_and_after() -> None:
    layer = KNConv2d(2, 3, 2, padding=(1, 0, 2, 0))
    x = torch.randn(1, 2, 4, 4)
    assert layer(x).shape == (1, 3, 5, 4)
    plain = KNConv2d(2, 3, 2)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(nn.functional.pad(x, (1, 0, 2, 0))))


@pytest.mark.parametrize("make", [lambda: KNConv2d(2, 3, 3, dropout=0.4), lambda: KernelNorm2d(2, dropout=0.4)])
def test_dropout_is_random_in_training_and_absent_in_evaluation(make: Callable[[], nn.Module]) -> None:
    layer, x = make(), torch.randn(2, 2, 5, 5)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_a_mask_leaves_out_as_many_as_it_says() -> None:
    torch.manual_seed(0)
    drop = UnitDropout(0.05)
    kept = drop(torch.zeros(3, 7, 999))
    assert kept is not None
    assert kept.shape == (3, 7, 999)
    assert float(kept.float().mean()) == pytest.approx(0.95, abs=0.005)
    assert drop.scale == pytest.approx(1 / 0.95, rel=1e-5)


@pytest.mark.parametrize(
    "layer", [KNConv2d(2, 3, 3, padding=1, dropout=0.2), KNConv2d(2, 4, 2, groups=2), KernelNorm2d(2, 1, 1)]
)
def test_an_example_is_treated_alike_in_every_company(layer: nn.Module) -> None:
    layer.eval()
    x = torch.randn(4, 2, 6, 6)
    alone = torch.cat([layer(one[None]) for one in x])
    torch.testing.assert_close(layer(x), alone, rtol=1e-6, atol=1e-6)
    x[1:] = 1e3
    torch.testing.assert_close(layer(x)[0], alone[0], rtol=1e-6, atol=1e-6)


def test_a_convolution_has_the_parameters_of_a_plain_one() -> None:
    ours, plain = KNConv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3, groups=2)
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in plain.state_dict().items()
    }
    assert not list(KernelNorm2d(2).parameters())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: KNConv2d(2, 3, 3, dropout=1.0), "dropout: 1.0"),
        (lambda: KernelNorm2d(2, dropout=-0.1), "dropout: -0.1"),
        (lambda: KernelNorm2d(2, dropout=math.nan), "dropout: nan"),
        (lambda: KNConv2d(2, 3, 3, eps=0.0), "eps: 0.0"),
        (lambda: KernelNorm2d(2, eps=math.inf), "eps: inf"),
        (lambda: KNConv2d(3, 4, 3, groups=2), "groups: 2 is not a divisor of the 3 in_channels"),
        (lambda: KNConv2d(4, 3, 3, groups=2), "groups: 2 is not a divisor of the 3 out_channels"),
        (lambda: KNConv2d(2, 3, 5)(torch.zeros(1, 2, 4, 9)), r"kernel: \[5, 5\]"),
        (lambda: KernelNorm1d(3, dropout=0.1)(torch.zeros(1, 2, 2)), r"kernel: \[3\]"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(make: Callable[[], object], said: str) -> None:
    with pytest.raises(HanseError, match=said):
        make()


@pytest.mark.parametrize(("groups", "p"), [(1, 0.0), (2, 0.3)])
def test_second_derivatives_go_through_the_statistics(groups: int, p: float) -> None:
    """As meta-learning and penalties on gradients take them."""
    torch.manual_seed(0)
    layer = KNConv2d(2, 2, 2, stride=2, padding=1, groups=groups).double()
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    layer.keep = Known(torch.rand(x.shape) >= p if p else None, p)

    def made(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradgradcheck(made, (x, layer.weight, layer.bias))
