"""Gradients of single examples: one pass back to the layers' outputs, then each layer's own for one example at a time.

What a convolution or a linear layer needs for its weights' gradient is its input and its output's gradient, which a
batch keeps apart by example (Goodfellow, 2015). That costs what a batch's gradient costs. Layers of other kinds have
theirs by `torch.func.vmap`, which runs every operation for each example. Where a weight is large and its positions are
few, the gradients are left as their factors (`hanse_learning.site.factors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hanse_learning.site.factors import Factors, factors_of, worth_factors
from hanse_learning.site.layers import KNConv1d, KNConv2d, KNConv3d

Loss = Callable[[Tensor, Tensor], Tensor]
Parameters = Mapping[str, nn.Parameter]
Gradients = dict[str, Tensor]
"""By parameter, (k, *shape): of k examples."""
Mixed = dict[str, Tensor | Factors]
"""The same, of which some are not multiplied out."""

_KEPT = 3
"""Values that are kept for each value that a layer puts out: the output, its gradient, and what operations leave."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_KN_CONVOLUTIONS = (KNConv1d, KNConv2d, KNConv3d)
_KNOWN = (nn.Linear, nn.GroupNorm, *_CONVOLUTIONS, *_KN_CONVOLUTIONS)


@dataclass(frozen=True, slots=True)
class Seen:
    """One use of a layer in a forward pass; `statistics` are of kernel-normalized units."""

    name: str
    layer: nn.Module
    x: Tensor
    out: Tensor
    statistics: tuple[Tensor, ...]


class OfExamples(Protocol):
    """Gradients of single examples by (parameters, x (k copies, *shape), y (k copies, ...)).

    The examples' copies (augmentations) lie one after the other; an example's gradient is the mean over its copies.
    """

    def __call__(self, named: Parameters, x: Tensor, y: Tensor, copies: int = 1) -> Gradients: ...


class MixedOfExamples(Protocol):
    """As `OfExamples`."""

    def __call__(self, named: Parameters, x: Tensor, y: Tensor, copies: int = 1) -> Mapping[str, Tensor | Factors]: ...


def example_gradients(module: nn.Module, loss_of: Loss) -> MixedOfExamples:
    """The way that fits the module's layers.

    Args:
        loss_of: a mean over examples.
    """
    return mixed_by_layers(module, loss_of) if all_known(module) else by_vmap(module, loss_of)


def all_known(module: nn.Module) -> bool:
    """Whether all parameters are those of layers whose single examples' gradients are made layer by layer."""
    # A subclass may compute something else.
    return all(
        type(part) in _KNOWN for part in module.modules() if next(part.parameters(recurse=False), None) is not None
    )


def numbers_of_example(module: nn.Module, x: Tensor, *, alone: bool = True) -> int:
    """How many numbers are kept for one example while its gradient is made: that, and what layers put out for it.

    Args:
        x: the example's copies, (copies, *shape).
        alone: whether its gradient is not summed with other examples' (`copies`): then factors may be kept for it.
    """
    outputs, spared = 0, dict[nn.Module, int]()
    in_factors = alone and all_known(module)

    def count(part: nn.Module, given: tuple[Tensor, ...], out: object) -> None:
        nonlocal outputs
        inner = next(part.children(), None) is not None and not isinstance(part, _KNOWN)
        if inner or not isinstance(out, Tensor):
            return
        outputs += out.numel()
        numbers = worth_factors(part, given[0], out, len(x)) if in_factors and isinstance(part, _KNOWN) else 0
        once = numbers and part not in spared  # gradients of several uses are added
        spared[part] = part.weight.numel() - numbers if once else 0  # type: ignore[operator]

    handles = [part.register_forward_hook(count) for part in module.modules()]
    with torch.no_grad():
        module(x)
    for handle in handles:
        handle.remove()
    parameters = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return parameters - sum(spared.values()) + _KEPT * outputs


def by_layers(module: nn.Module, loss_of: Loss) -> OfExamples:
    """As `mixed_by_layers`, and all are multiplied out."""
    mixed = mixed_by_layers(module, loss_of)

    def gradients(named: Parameters, x: Tensor, y: Tensor, copies: int = 1) -> Gradients:
        return {name: multiplied(made) for name, made in mixed(named, x, y, copies).items()}

    return gradients


def mixed_by_layers(module: nn.Module, loss_of: Loss) -> MixedOfExamples:
    """For modules whose parameters are those of convolutions (kernel-normalized ones, too), linear layers and group
    normalizations. What the function returns is written over by its next call."""
    layers = {name: part for name, part in module.named_modules() if type(part) in _KNOWN}
    rooms: dict[str, Tensor] = {}  # of filters, which are large: new memory would take as long as a part of the work

    def room(use: Seen, examples: int) -> Tensor | None:
        if not isinstance(use.layer, (*_CONVOLUTIONS, *_KN_CONVOLUTIONS)):
            return None
        if use.name not in rooms or len(rooms[use.name]) < examples:
            rooms[use.name] = use.x.new_empty(examples, *use.layer.weight.shape)
        return rooms[use.name][:examples]

    def of_use(use: Seen, of_out: Tensor, copies: int, first: bool) -> Mixed:
        layer: Any = use.layer
        if not worth_factors(layer, use.x, of_out, copies):
            free = room(use, len(of_out) // copies) if first else None
            return dict(gradients_of_layer(layer, use.x, use.statistics, of_out, copies, room=free))
        made: Mixed = {"weight": factors_of(layer, use.x, use.statistics, of_out, copies)}
        if layer.bias is not None and layer.bias.requires_grad:
            made["bias"] = _of_bias(layer, of_out, copies)
        return made

    def gradients(named: Parameters, x: Tensor, y: Tensor, copies: int = 1) -> Mixed:
        seen: list[Seen] = []
        handles = [part.register_forward_hook(_recording(name, seen)) for name, part in layers.items()]
        moving = [parameter for parameter in module.parameters() if parameter.requires_grad]
        _watch(layers.values(), watched=True)
        try:
            for parameter in moving:  # their gradients are made below, layer by layer
                parameter.requires_grad_(False)
            loss = loss_of(module(x), y) * (len(x) / copies)
            back = torch.autograd.grad(loss, [use.out for use in seen])
        finally:
            _watch(layers.values(), watched=False)
            for parameter in moving:
                parameter.requires_grad_()
            for handle in handles:
                handle.remove()
        made: Mixed = {}
        with torch.no_grad():
            for use, of_out in zip(seen, back, strict=True):
                for last, gradient in of_use(use, of_out, copies, f"{use.name}.weight" not in made).items():
                    name = f"{use.name}.{last}" if use.name else last
                    made[name] = multiplied(made[name]) + multiplied(gradient) if name in made else gradient
        return {name: made[name] if name in made else _none(value, len(x) // copies) for name, value in named.items()}

    return gradients


def by_vmap(module: nn.Module, loss_of: Loss) -> OfExamples:
    """For any module whose examples do not depend on each other."""
    from torch.func import functional_call, grad, vmap  # it takes a while to load, and other modules need none of it

    fixed = {name: buffer.detach() for name, buffer in module.named_buffers()}

    def loss_of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss_of(functional_call(module, (parameters, fixed), (x,)), y)

    each = vmap(grad(loss_of_one), in_dims=(None, 0, 0), randomness="different")

    def gradients(named: Parameters, x: Tensor, y: Tensor, copies: int = 1) -> Gradients:
        apart = [part.reshape(-1, copies, *part.shape[1:]) for part in (x, y)]
        made: Gradients = each({name: value.detach() for name, value in named.items()}, *apart)
        return made

    return gradients


def _watch(layers: Iterable[nn.Module], *, watched: bool) -> None:
    for layer in layers:
        if isinstance(layer, _KN_CONVOLUTIONS):
            layer.watched = [] if watched else None


def _recording(name: str, seen: list[Seen]) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def record(layer: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        x, *statistics = layer.watched or given if isinstance(layer, _KN_CONVOLUTIONS) else given
        if not out.requires_grad:  # the first layer: nothing before it has a gradient
            out.requires_grad_()
        seen.append(Seen(name, layer, x.detach(), out, tuple(statistics)))

    return record


def gradients_of_layer(
    layer: nn.Module, x: Tensor, statistics: Sequence[Tensor], of_out: Tensor, copies: int = 1, *,
    room: Tensor | None = None,
) -> Gradients:  # fmt: skip
    """Those of one layer's parameters that are trained, by the parameters' own names.

    Args:
        x: its input (k copies, ...).
        statistics: of kernel-normalized units: means, and 1 / standard deviations.
        of_out: the gradient of its output.
        room: for the gradients of a convolution's weight.
    """
    trained = {name for name, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad}
    made: Gradients = {}
    if "bias" in trained:
        made["bias"] = _of_bias(layer, of_out, copies)
    if "weight" not in trained:
        return made
    if isinstance(layer, nn.Linear):
        made["weight"] = factors_of(layer, x, (), of_out, copies).multiplied()
    elif isinstance(layer, nn.GroupNorm):
        normalized = nn.functional.group_norm(x, layer.num_groups, eps=layer.eps)
        made["weight"] = _per_channel(normalized * of_out, copies)
    else:
        made["weight"] = _of_filters(layer, x, of_out, statistics, copies, room)
    return made


def multiplied(gradient: Tensor | Factors) -> Tensor:
    """(k, *shape)."""
    return gradient.multiplied() if isinstance(gradient, Factors) else gradient


def _of_bias(layer: nn.Module, of_out: Tensor, copies: int) -> Tensor:
    if isinstance(layer, nn.Linear):  # its channels are the last axis
        return of_out.reshape(len(of_out) // copies, -1, of_out.shape[-1]).sum(1)
    return _per_channel(of_out, copies)


def _of_filters(
    layer: Any, x: Tensor, of_out: Tensor, statistics: Sequence[Tensor], copies: int, room: Tensor | None
) -> Tensor:
    """Of a convolution's weight: (k, *shape)."""
    of_sums = None
    if statistics:  # out = (x * Z - mean sum(Z)) inverse + b
        mean, inverse = statistics
        of_out = of_out * inverse
        of_sums = _per_channel(of_out * mean, copies)  # (k, channels)
    made = x.new_empty(len(x) // copies, *layer.weight.shape) if room is None else room
    none = (0,) * (x.dim() - 2)
    for index, target in enumerate(made):
        own = slice(index * copies, (index + 1) * copies)
        _, gradient, _ = torch.ops.aten.convolution_backward(
            of_out[own], x[own], layer.weight, None, layer.stride, layer.padding, layer.dilation, False, none,
            layer.groups, [False, True, False],
        )  # fmt: skip
        if of_sums is None:
            target.copy_(gradient)
        else:
            torch.sub(gradient, of_sums[index].reshape(-1, *(1,) * (target.dim() - 1)), out=target)
    return made


def _per_channel(values: Tensor, copies: int) -> Tensor:
    """(k copies, channels, *space) -> (k, channels): sums over space and copies."""
    sums = values.flatten(2).sum(2) if values.dim() > 2 else values
    return sums.reshape(-1, copies, sums.shape[1]).sum(1)


def _none(parameter: Tensor, examples: int) -> Tensor:
    return parameter.new_zeros(examples, *parameter.shape)
