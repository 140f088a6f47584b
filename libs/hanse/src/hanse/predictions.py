"""A table of people's own, and beside its columns what a trained model says of each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hanse.trained import TrainedModel
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_schemas.csv_form import Encoding
from hanse_schemas.csv_frame import read_frame

PREDICTION, PROBABILITY = "prediction", "probability_"
"""Names of the columns that are added; of a class's probability with its label behind it."""


def write_predictions(model: TrainedModel, table: Path, output: Path, encoding: Encoding = "utf-8") -> int:
    """Write the table with the model's predictions.

    Args:
        table: CSV with a header line; columns that are no features stay as they are.
        output: CSV in UTF-8; it is there whole or not at all.
        encoding: of the table.

    Returns:
        The number of rows.

    Raises:
        HanseError: NOT_FOUND or INVALID_INPUT naming file, column and row.
    """
    try:
        frame = read_frame(table, model.schema, encoding=encoding)
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{table}: there is no such file") from None
    except UnicodeError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{table}: its text is not {encoding}: {error}",
            hint="say which it is by --encoding: cp1252 is what Windows programs of Western Europe write",
        ) from None  # fmt: skip
    except ValueError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{table}: it is not CSV: {error}",
            hint="a header line; commas, semicolons or tabs between values",
        ) from None  # fmt: skip
    if not model.columns:
        raise invalid(str(table), "a table", "arrays, which this model takes", hint="hanse.load(path).predict(array)")
    if model.task == "classification":
        shares = model.predict_proba(frame)
        names: Sequence[str | int] = model.class_names or range(model.classes)
        made: dict[str, Any] = {PREDICTION: [names[place] for place in shares.argmax(axis=1)]}
        made |= {f"{PROBABILITY}{name}": shares[:, place] for place, name in enumerate(names)}
    else:
        made = {PREDICTION: model.predict(frame)}
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
