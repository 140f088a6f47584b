"""Spurious features for any set of images: rotations and colours that tell the class in training, and not in testing.

FedRotMNIST and FedCMNIST (Mugunthan, 2022, section 3.5.3), made from whatever images there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid

DEGREES = (10, -10, 20, -20, 30, -30, 40, -40, 50, -50)
"""How class c is rotated in training; test images are upright."""

PALETTE: NDArray[np.float32] = np.array(
    [
        (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (1.0, 0.0, 1.0),
        (0.0, 1.0, 1.0), (1.0, 0.5, 0.0), (0.5, 0.0, 1.0), (0.0, 0.5, 0.25), (0.75, 0.75, 0.75),
    ],
    np.float32,
)  # fmt: skip
"""Ten colours (the paper names none)."""

Images = NDArray[np.float32]


def rotated(images: Images, labels: NDArray[np.integer]) -> Images:
    """Each image turned about its centre by its class's angle, bilinear, zeros beyond the edge.

    Args:
        images: (n, height, width).
        labels: (n,) integers from 0; class c has `DEGREES[c mod 10]`.

    Raises:
        HanseError: INVALID_INPUT for another shape.
    """
    _check(images, labels)
    turned = np.empty_like(images)
    for label in np.unique(labels):
        chosen = labels == label
        turned[chosen] = rotate(images[chosen], DEGREES[int(label) % len(DEGREES)])
    return turned


def coloured(images: Images, labels: NDArray[np.integer], *, shift: int = 0) -> Images:
    """(n, 3, height, width): each image in its class's colour.

    Args:
        images: (n, height, width), values in [0, 1].
        shift: 0 in training; any other in testing, where a class then has another's colour.

    Raises:
        HanseError: INVALID_INPUT for another shape.
    """
    _check(images, labels)
    colours = PALETTE[(labels + shift) % len(PALETTE)]
    return np.asarray(images[:, None] * colours[:, :, None, None], np.float32)


def rotate(images: Images, degrees: float) -> Images:
    """(n, height, width) turned counter-clockwise about the centre."""
    _, height, width = images.shape
    angle = np.deg2rad(degrees)
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    centre_row, centre_column = (height - 1) / 2, (width - 1) / 2
    down, right = rows - centre_row, columns - centre_column
    # The image's y axis points down: for each target the point it comes from.
    from_row = np.cos(angle) * down + np.sin(angle) * right + centre_row
    from_column = -np.sin(angle) * down + np.cos(angle) * right + centre_column
    top, left = np.floor(from_row).astype(int), np.floor(from_column).astype(int)
    result = np.zeros(images.shape, np.float64)
    for row, row_weight in ((top, 1 - (from_row - top)), (top + 1, from_row - top)):
        for column, column_weight in ((left, 1 - (from_column - left)), (left + 1, from_column - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            pixels = images[:, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
            result += pixels * (row_weight * column_weight * inside)
    return result.astype(np.float32)


def _check(images: Images, labels: NDArray[np.integer]) -> None:
    if images.ndim != 3 or len(images) != len(labels):
        raise invalid("images", list(images.shape), f"({len(labels)}, height, width), an image for each label")
