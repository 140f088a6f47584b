"""Triton's kernels for units: statistics, the outcome of a layer, and the way back. All sums are float32, in one order.

Everything has three axes here; layers of fewer have axes of one place before theirs. A window's variance is put
together of each place's own mean and variance over channels: nothing large is subtracted from something large.

    var = mean over the window's places of (variance of the place + (mean of the place - mean of the window)^2)

Nothing is added by several programs at once, so one device makes the same bits each time.

Names: of an input (n, c, S0, S1, S2), `first` and `second` are the means and variances over channels (n, S0 S1 S2);
W is the windows along each axis, K, STEP, PAD and APART the kernel, stride, padding and dilation.
"""

from __future__ import annotations

import triton
import triton.language as tl

PLACES, CHANNELS = 64, 64
"""That a program works on at once."""
_SIZES = ["S0", "S1", "S2", "W0", "W1", "W2"]  # a kernel serves images of all sizes: none is compiled anew for one


@triton.jit
def _place(at, k, S, STEP: tl.constexpr, PAD: tl.constexpr, APART: tl.constexpr):
    """Where the k-th place of a window lies along an axis, and whether that is not padding."""
    place = at * STEP - PAD + k * APART
    return place, (place >= 0) & (place < S)


@triton.jit
def _window(place, k, W, STEP: tl.constexpr, PAD: tl.constexpr, APART: tl.constexpr):
    """The window along an axis whose k-th place this is, and whether there is one."""
    begin = place + PAD - k * APART
    return begin // STEP, (begin >= 0) & (begin % STEP == 0) & (begin // STEP < W)


@triton.jit
def _places(
    window, k, S0, S1, S2, W1, W2,
    K1: tl.constexpr, K2: tl.constexpr, STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
):  # fmt: skip
    """The k-th place of windows, and whether it is not padding."""
    a, in_a = _place(window // (W1 * W2), k // (K1 * K2), S0, STEP0, PAD0, APART0)
    b, in_b = _place(window // W2 % W1, k // K2 % K1, S1, STEP1, PAD1, APART1)
    c, in_c = _place(window % W2, k % K2, S2, STEP2, PAD2, APART2)
    return (a * S1 + b) * S2 + c, in_a & in_b & in_c


@triton.jit
def _windows(
    place, k, S1, S2, W0, W1, W2,
    K1: tl.constexpr, K2: tl.constexpr, STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
):  # fmt: skip
    """The windows whose k-th place these are, and whether there is one."""
    a, in_a = _window(place // (S1 * S2), k // (K1 * K2), W0, STEP0, PAD0, APART0)
    b, in_b = _window(place // S2 % S1, k // K2 % K1, W1, STEP1, PAD1, APART1)
    c, in_c = _window(place % S2, k % K2, W2, STEP2, PAD2, APART2)
    return (a * W1 + b) * W2 + c, in_a & in_b & in_c


@triton.jit
def _side_by_side(window, k, W1, W2, K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr):
    """Where the k-th place of windows lies when units lie side by side."""
    a = window // (W1 * W2) * K0 + k // (K1 * K2)
    b = window // W2 % W1 * K1 + k // K2 % K1
    c = window % W2 * K2 + k % K2
    return (a * (W1 * K1) + b) * (W2 * K2) + c


@triton.jit
def _statistics(
    first, second, of, window, within, scale, epsilon, S0, S1, S2, W1, W2,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation of windows of the example whose places begin at `of`."""
    K: tl.constexpr = K0 * K1 * K2
    mean = window * 0.0
    for k in range(K):
        place, inside = _places(
            window, k, S0, S1, S2, W1, W2, K1, K2, STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2
        )
        mean += tl.load(first + of + place, mask=inside & within, other=0.0)
    mean /= K
    variance = window * 0.0
    for k in range(K):
        place, inside = _places(
            window, k, S0, S1, S2, W1, W2, K1, K2, STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2
        )
        apart = tl.load(first + of + place, mask=inside & within, other=0.0) - mean
        variance += tl.load(second + of + place, mask=inside & within, other=0.0) + apart * apart
    variance = variance / K * scale * scale
    return mean * scale, 1 / tl.sqrt(variance + epsilon)


@triton.jit
def of_places(
    x, keep, first, second, channels, space,
    MASKED: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """`first` and `second` of x, in which what the mask leaves out is zero."""
    example = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    within = place < space
    mean = place * 0.0
    squares = place * 0.0
    for begin in range(0, channels, CHANNELS):
        channel = begin + tl.arange(0, CHANNELS)
        inside = (channel < channels)[:, None] & within[None, :]
        at = (example * channels + channel[:, None]) * space + place[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if MASKED:
            value = tl.where(tl.load(keep + at, mask=inside, other=0) != 0, value, 0.0)
        number = tl.minimum(channels - begin, CHANNELS) * 1.0
        own = tl.sum(value, 0) / number
        apart = tl.where(inside, value - own[None, :], 0.0)
        off = own - mean
        share = number / (begin + number)
        squares += tl.sum(apart * apart, 0) + off * off * (begin * share)
        mean += off * share
    at = example * space + place
    tl.store(first + at, mean, mask=within)
    tl.store(second + at, squares / channels, mask=within)


@triton.jit(do_not_specialize=_SIZES)
def normalize(
    out, first, second, sums, bias, means, inverses, channels, scale, epsilon, S0, S1, S2, W0, W1, W2,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
    PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """A plain convolution's outcome becomes, where it lies, that of normalized units; their statistics are written."""
    example, windows = tl.program_id(1).to(tl.int64), W0 * W1 * W2
    window = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    within = window < windows
    mean, inverse = _statistics(
        first, second, example * S0 * S1 * S2, window, within, scale, epsilon, S0, S1, S2, W1, W2, K0, K1, K2,
        STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2,
    )  # fmt: skip
    if tl.program_id(2) == 0:
        tl.store(means + example * windows + window, mean, mask=within)
        tl.store(inverses + example * windows + window, inverse, mask=within)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    weight = tl.load(sums + channel, mask=known, other=0.0)
    shift = tl.load(bias + channel, mask=known, other=0.0)
    inside = known[:, None] & within[None, :]
    at = (example * channels + channel[:, None]) * windows + window[None, :]
    value = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
    value = (value - weight[:, None] * mean[None, :]) * inverse[None, :] + shift[:, None]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_SIZES)
def lay_units(
    x, first, second, out, means, inverses, channels, scale, epsilon, S0, S1, S2, W0, W1, W2,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
    PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The normalized units side by side; their statistics are written."""
    K: tl.constexpr = K0 * K1 * K2
    example, space, windows = tl.program_id(1).to(tl.int64), S0 * S1 * S2, W0 * W1 * W2
    window = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    within = window < windows
    mean, inverse = _statistics(
        first, second, example * space, window, within, scale, epsilon, S0, S1, S2, W1, W2, K0, K1, K2,
        STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2,
    )  # fmt: skip
    if tl.program_id(2) == 0:
        tl.store(means + example * windows + window, mean, mask=within)
        tl.store(inverses + example * windows + window, inverse, mask=within)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    row = example * channels + channel[:, None]
    known = (channel < channels)[:, None] & within[None, :]
    for k in range(K):
        place, inside = _places(
            window, k, S0, S1, S2, W1, W2, K1, K2, STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2
        )
        value = tl.load(x + row * space + place[None, :], mask=known & inside[None, :], other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * inverse[None, :]
        side = _side_by_side(window, k, W1, W2, K0, K1, K2)
        tl.store(out + row * (windows * K) + side[None, :], value.to(out.dtype.element_ty), mask=known)


@triton.jit
def _write_of_statistics(of_first, of_second, at, within, mean, inverse, of_mean, of_inverse, scale, size):
    """What a place's sum and sum of squares add to the gradient, for windows whose statistics have these gradients."""
    of_variance = -0.5 * inverse * inverse * inverse * of_inverse
    tl.store(of_first + at, (of_mean - 2 * mean * of_variance) * (scale / size), mask=within)
    tl.store(of_second + at, of_variance * (2 * scale * scale / size), mask=within)


@triton.jit
def back_through_normalize(
    given, out, sums, bias, means, inverses, scaled, of_first, of_second, of_filters, channels, windows, scale, size,
    PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of the plain convolution's outcome (`scaled`), of the statistics, and parts of two sums:

    `of_filters` (n, parts, 2, channels): the gradients of each filter's sum and of its bias, of a part of the windows.
    """
    part, example, parts = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    window = part * PLACES + tl.arange(0, PLACES)
    within = window < windows
    of_window = example * windows + window
    mean = tl.load(means + of_window, mask=within, other=0.0)
    inverse = tl.load(inverses + of_window, mask=within, other=1.0)
    of_mean = window * 0.0
    of_inverse = window * 0.0
    for begin in range(0, channels, CHANNELS):
        channel = begin + tl.arange(0, CHANNELS)
        known = channel < channels
        weight = tl.load(sums + channel, mask=known, other=0.0)
        shift = tl.load(bias + channel, mask=known, other=0.0)
        inside = known[:, None] & within[None, :]
        at = (example * channels + channel[:, None]) * windows + window[None, :]
        gradient = tl.load(given + at, mask=inside, other=0.0).to(tl.float32)
        made = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
        through = gradient * inverse[None, :]
        tl.store(scaled + at, through.to(scaled.dtype.element_ty), mask=inside)
        of_mean -= tl.sum(through * weight[:, None], 0)
        of_inverse += tl.sum(gradient * (made - shift[:, None]), 0)
        to = of_filters + (example * parts + part) * 2 * channels + channel
        tl.store(to, -tl.sum(through * mean[None, :], 1), mask=known)
        tl.store(to + channels, tl.sum(gradient, 1), mask=known)
    _write_of_statistics(
        of_first, of_second, of_window, within, mean, inverse, of_mean, of_inverse / inverse, scale, size
    )


@triton.jit(do_not_specialize=_SIZES)
def back_through_units(
    given, x, means, inverses, of_first, of_second, channels, scale, size, S0, S1, S2, W0, W1, W2,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
    PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of the statistics of units that lie side by side."""
    K: tl.constexpr = K0 * K1 * K2
    example, space, windows = tl.program_id(1).to(tl.int64), S0 * S1 * S2, W0 * W1 * W2
    window = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    within = window < windows
    of_window = example * windows + window
    mean = tl.load(means + of_window, mask=within, other=0.0)
    inverse = tl.load(inverses + of_window, mask=within, other=1.0)
    of_mean = window * 0.0
    of_inverse = window * 0.0
    for begin in range(0, channels, CHANNELS):
        channel = begin + tl.arange(0, CHANNELS)
        row = example * channels + channel[:, None]
        known = (channel < channels)[:, None] & within[None, :]
        for k in range(K):
            place, inside = _places(
                window, k, S0, S1, S2, W1, W2, K1, K2, STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2
            )
            value = tl.load(x + row * space + place[None, :], mask=known & inside[None, :], other=0.0).to(tl.float32)
            side = _side_by_side(window, k, W1, W2, K0, K1, K2)
            gradient = tl.load(given + row * (windows * K) + side[None, :], mask=known, other=0.0).to(tl.float32)
            of_mean -= tl.sum(gradient, 0) * inverse
            of_inverse += tl.sum(gradient * (value - mean[None, :]), 0)
    _write_of_statistics(of_first, of_second, of_window, within, mean, inverse, of_mean, of_inverse, scale, size)


@triton.jit(do_not_specialize=_SIZES)
def back_to_places(
    of_x, x, keep, given, inverses, of_first, of_second, channels, S0, S1, S2, W0, W1, W2,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    STEP0: tl.constexpr, STEP1: tl.constexpr, STEP2: tl.constexpr,
    PAD0: tl.constexpr, PAD1: tl.constexpr, PAD2: tl.constexpr,
    APART0: tl.constexpr, APART1: tl.constexpr, APART2: tl.constexpr,
    MASKED: tl.constexpr, UNITS: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of x: what the windows' statistics add, and with UNITS that of units side by side (`given`)."""
    K: tl.constexpr = K0 * K1 * K2
    example, space, windows = tl.program_id(1).to(tl.int64), S0 * S1 * S2, W0 * W1 * W2
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    within = place < space
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    row = example * channels + channel[:, None]
    known = (channel < channels)[:, None] & within[None, :]
    at = row * space + place[None, :]
    constant = place * 0.0
    factor = place * 0.0
    if UNITS:
        gradient = tl.zeros([CHANNELS, PLACES], tl.float32)
    else:
        gradient = tl.load(of_x + at, mask=known, other=0.0).to(tl.float32)
    for k in range(K):
        window, there = _windows(
            place, k, S1, S2, W0, W1, W2, K1, K2, STEP0, STEP1, STEP2, PAD0, PAD1, PAD2, APART0, APART1, APART2
        )
        there = there & within
        of_window = example * windows + window
        constant += tl.load(of_first + of_window, mask=there, other=0.0)
        factor += tl.load(of_second + of_window, mask=there, other=0.0)
        if UNITS:
            side = _side_by_side(window, k, W1, W2, K0, K1, K2)
            mask = known & there[None, :]
            more = tl.load(given + row * (windows * K) + side[None, :], mask=mask, other=0.0).to(tl.float32)
            gradient += more * tl.load(inverses + of_window, mask=there, other=0.0)[None, :]
    added = constant[None, :] + tl.load(x + at, mask=known, other=0.0).to(tl.float32) * factor[None, :]
    if MASKED:
        added = tl.where(tl.load(keep + at, mask=known, other=0) != 0, added, 0.0)
    tl.store(of_x + at, (gradient + added).to(of_x.dtype.element_ty), mask=known)
