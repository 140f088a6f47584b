"""Folders of images, one subfolder a class.

Subfolders are named by label (0, 1, ...), or by class: then sorted names give the labels, and every site needs all of
them, empty ones too, so that labels mean the same everywhere. Whose they are says `unit_manifest`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from hanse_datapod.data.check import Raw, mismatch
from hanse_datapod.data.unit_manifest import whose_images
from hanse_fabric.errors import ErrorCode, HanseError, unfit
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
    labels = _labels(folder, schema)
    shape = schema.shape if isinstance(schema, ArraySchema) else None
    images: list[NDArray[np.float32]] = []
    found: list[int] = []
    files: list[str] = []
    total = 0
    for name, label in labels.items():
        for path in sorted((folder / name).iterdir()):
            if path.suffix.lower() not in _ENDINGS:
                continue
            image = _read(path, shape, f"data {folder.name}: image {len(images) + 1}")
            shape = shape or image.shape
            images.append(image)
            found.append(label)
            files.append(f"{name}/{path.name}")
            total += image.nbytes
            if total > max_bytes:
                raise HanseError(ErrorCode.TOO_LARGE, f"data {folder.name}: more than {max_bytes} bytes of pixels")
    if not images:
        raise mismatch(f"data {folder.name}: there are no images ({', '.join(sorted(_ENDINGS))}) in its subfolders")
    unit = unit_of(schema)
    whose = None if unit is None else whose_images(folder, files, unit, max_bytes)
    return Raw(f"data {folder.name}", np.stack(images), np.array(found, dtype=np.int64), "image", whose)


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
