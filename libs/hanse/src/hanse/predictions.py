"""A table of people's own, or arrays, and beside its columns what a trained model says of each row."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.trained import TrainedModel
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_schemas.csv_form import Encoding
from hanse_schemas.csv_frame import read_frame

if TYPE_CHECKING:
    import pandas as pd

PREDICTION, PROBABILITY = "prediction", "probability_"
"""Names of the columns that are added; of a class's probability with its label behind it."""


def write_predictions(model: TrainedModel, table: Path, output: Path, encoding: Encoding = "utf-8") -> int:
    """Write the table with the model's predictions.

    Args:
        table: of a model of columns CSV with a header line, or Parquet (`.parquet`): columns that are no features stay
            as they are. Of a model of arrays an NPZ file with an array `x` (n, *shape), as sites have it.
        output: CSV in UTF-8, of an NPZ file with the predictions alone; it is there whole or not at all.
        encoding: of a CSV.

    Returns:
        The number of rows.

    Raises:
        HanseError: NOT_FOUND or INVALID_INPUT naming file, column and row.
    """
    import pandas as pd

    given = _table(model, table, encoding) if model.columns else _array(table)
    if model.task == "classification":
        shares = model.predict_proba(given)
        names: Sequence[str | int] = model.class_names or range(model.classes)
        made: dict[str, Any] = {PREDICTION: [names[place] for place in shares.argmax(axis=1)]}
        made |= {f"{PROBABILITY}{name}": shares[:, place] for place, name in enumerate(names)}
    else:
        made = {PREDICTION: model.predict(given)}
    frame = given if model.columns else pd.DataFrame(index=range(len(given)))
    if there := [name for name in made if name in frame.columns]:
        raise invalid(str(table), f"a column {there[0]}", "columns of other names: this one is added")
    unfinished = output.with_name(output.name + ".unfinished")
    try:
        frame.assign(**made).to_csv(unfinished, index=False)
        unfinished.replace(output)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{output}: it cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return len(frame)


def _table(model: TrainedModel, path: Path, encoding: Encoding) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else read_frame(path, model.schema, encoding=encoding)
    except FileNotFoundError:
        raise _absent(path) from None
    except UnicodeError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{path}: its text is not {encoding}: {error}",
            hint="say which it is by --encoding: cp1252 is what Windows programs of Western Europe write",
        ) from None  # fmt: skip
    except (OSError, ValueError) as error:  # damaged Parquet is either
        kind, hint = (
            ("Parquet", "write it with pandas' to_parquet") if path.suffix == ".parquet"
            else ("CSV", "a header line; commas, semicolons or tabs between values")
        )  # fmt: skip
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: it is not {kind}: {error}", hint=hint) from None


def _array(path: Path) -> Any:
    """The array `x` of an NPZ file, (n, *shape)."""
    import numpy as np

    if path.suffix != ".npz":
        raise invalid(str(path), "a table", "an NPZ file with an array x, for this model takes arrays")
    try:
        arrays = np.load(path, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("it holds an array without a name, as numpy.save writes it")
        with arrays:
            if "x" not in arrays.files:
                raise HanseError(
                    ErrorCode.INVALID_INPUT, f"{path}: its arrays are {', '.join(arrays.files) or 'none'}, and x is "
                    "not among them", hint="write it with numpy.savez(path, x=...)",
                )  # fmt: skip
            return arrays["x"]
    except FileNotFoundError:
        raise _absent(path) from None
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError) as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{path}: it is not an NPZ file of plain arrays: {error}",
            hint="write it with numpy.savez(path, x=...)",
        ) from None  # fmt: skip


def _absent(path: Path) -> HanseError:
    return HanseError(ErrorCode.NOT_FOUND, f"{path}: there is no such file")
