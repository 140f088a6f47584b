"""Folders of images, one subfolder a class.

Subfolders are named by label (0, 1, ...), or by class: then sorted names give the labels, and every site needs all of
them, empty ones too, so that labels mean the same everywhere. Whose they are says `unit_manifest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from hanse_datapod.data.check import Passed, Raw, mismatch
from hanse_datapod.data.room import Room
from hanse_datapod.data.sides import Draw
from hanse_datapod.data.stored import PIECE_BYTES, Piece, stored
from hanse_datapod.data.unit_manifest import whose_images
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_learning.site.examples import Examples
from hanse_schemas.schema import ArraySchema, LearnableSchema, unit_of

_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm", ".ppm"})


def read_images(folder: Path, schema: LearnableSchema, max_bytes: int) -> Raw:
    """Pixels in [0, 1]: (n, height, width), or (n, 3, height, width) for colour.

    Raises:
        HanseError: INVALID_INPUT for a file that is no image, SCHEMA_MISMATCH for another size, TOO_LARGE; as
            `whose_images`, where the schema has a unit.
    """
    if not folder.is_dir():
        raise unfit(
            f"data {folder.name}: a folder with one subfolder a class was expected", code=ErrorCode.INVALID_INPUT
        )
    images = list(_images(folder, schema, max_bytes))
    found = np.array([label for _, _, label in images], dtype=np.int64)
    if not images:
        raise mismatch(f"data {folder.name}: there are no images ({', '.join(sorted(_ENDINGS))}) in its subfolders")
    whose = _whose(folder, [file for file, _, _ in images], schema, max_bytes)
    return Raw(f"data {folder.name}", np.stack([pixels for _, pixels, _ in images]), found, "image", whose)


def read_stored_images(
    folder: Path, schema: LearnableSchema, max_bytes: int, room: Room, draw: Draw | None = None
) -> Examples | None:  # fmt: skip
    """As `checked` of `read_images`, with the pixels in a file; None where there is room for them in memory.

    Args:
        draw: numbers those whose the images are (`Examples.draws`); None: nobody needs that.

    Raises:
        HanseError: as these; NO_SPACE.
    """
    if not folder.is_dir():
        return None
    labels = _labels(folder, schema)
    files = [file for name in labels for file in _files(folder / name)]
    first = next(_images(folder, schema, max_bytes), None)
    if first is None or 2 * len(files) * first[1].nbytes <= room.memory:  # once each, and stacked
        return None
    where, names = f"data {folder.name}", [f"{file.parent.name}/{file.name}" for file in files]
    images = _images(folder, schema, max_bytes)
    at_once = max(1, PIECE_BYTES // (3 * first[1].nbytes))

    def make(rows: range, _passed: Passed) -> Piece:
        found = [(pixels, label) for _, pixels, label in islice(images, len(rows))]
        y = np.array([label for _, label in found], np.int64)
        whose = None
        if rows.stop == len(names):  # as of the whole folder: behind the last image
            whose = _whose(folder, names, schema, max_bytes)
        return Piece(np.stack([pixels for pixels, _ in found]), y, whose)

    parts = (range(start, min(start + at_once, len(names))) for start in range(0, len(names), at_once))
    pieces = ((len(rows), partial(make, rows)) for rows in parts)
    found = stored(where, "image", len(names), pieces, schema, room, lambda y: y)
    if draw is None or (named := _whose(folder, names, schema, max_bytes)) is None:
        return found
    return replace(found, draws=draw(named))


def _whose(folder: Path, files: list[str], schema: LearnableSchema, max_bytes: int) -> NDArray[np.str_] | None:
    unit = unit_of(schema)
    return None if unit is None else whose_images(folder, files, unit, max_bytes)


def _images(
    folder: Path, schema: LearnableSchema, max_bytes: int
) -> Iterator[tuple[str, NDArray[np.float32], int]]:  # fmt: skip
    """(path from the folder, pixels, label) of each image."""
    shape = schema.shape if isinstance(schema, ArraySchema) else None
    total = count = 0
    for name, label in _labels(folder, schema).items():
        for path in _files(folder / name):
            count += 1
            image = _read(path, shape, f"data {folder.name}: image {count}")
            shape = shape or image.shape
            total += image.nbytes
            if total > max_bytes:
                raise HanseError(ErrorCode.TOO_LARGE, f"data {folder.name}: more than {max_bytes} bytes of pixels")
            yield f"{name}/{path.name}", image, label


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix.lower() in _ENDINGS]


def _labels(folder: Path, schema: LearnableSchema) -> dict[str, int]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if names and all(name.isascii() and name.isdigit() for name in names):
        return {name: int(name) for name in sorted(names, key=int)}
    classes = schema.classes if isinstance(schema, ArraySchema) else None
    if classes is not None and len(names) != classes:
        raise mismatch(
            f"data {folder.name}: {len(names)} subfolders, the schema says {classes} classes; "
            "make an empty one for a class that this site does not have, or name them 0, 1, ...",
            ", ".join(names[:8]),
        )
    return {name: label for label, name in enumerate(names)}


def _read(path: Path, shape: tuple[int, ...] | None, where: str) -> NDArray[np.float32]:
    """One image. Its name may be a person's: `where` says which it is without."""
    try:
        with Image.open(path) as image:
            colour = shape[0] == 3 if shape is not None and len(shape) == 3 else image.mode not in ("1", "L")
            if shape is not None and len(shape) < 3:
                colour = False
            if shape is not None and (image.height, image.width) != shape[-2:]:
                raise mismatch(
                    f"{where}: {' x '.join(str(n) for n in shape[-2:])} pixels (height x width) were expected",
                    f"{image.height} x {image.width} in {path}",
                )
            pixels = np.asarray(image.convert("RGB" if colour else "L"), dtype=np.float32) / np.float32(255)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise unfit(f"{where}: it cannot be read", f"{path}: {error}", code=ErrorCode.INVALID_INPUT) from None
    if colour:
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return pixels[None] if shape is not None and len(shape) == 3 else pixels
