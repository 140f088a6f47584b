"""Real tables that come with wheels: scikit-learn's (OpenML's among them, which its tests carry) and statsmodels'."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import pandas as pd
from sklearn.datasets import load_breast_cancer

from hanse_schemas.schema import Column, TabularSchema

TARGET = "target"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with missing cells and categories as they are, and what is to be said of it.

    Attributes:
        frame: features, and `TARGET`: 0 or 1.
        about: for people.
    """

    name: str
    about: str
    frame: pd.DataFrame

    @property
    def schema(self) -> TabularSchema:
        """As a project's owner would declare it; values of categories are those of the whole table."""
        features = []
        for name in self.features:
            if self.is_category(name):
                values = sorted(self.frame[name].dropna().unique())
                features.append(Column(name=name, kind="category", values=tuple(values)))
            else:
                features.append(Column(name=name))
        return TabularSchema(features=tuple(features), target=TARGET, classes=2)

    @property
    def features(self) -> list[str]:
        return [name for name in self.frame.columns if name != TARGET]

    @property
    def missing(self) -> int:
        """Cells that are empty."""
        return int(self.frame.isna().sum().sum())

    def is_category(self, name: str) -> bool:
        return not pd.api.types.is_numeric_dtype(self.frame[name])


def _openml(number: int) -> pd.DataFrame:
    """A table of OpenML's in ARFF, as scikit-learn's tests have it; `?` and `_` are empty cells."""
    folder = files("sklearn.datasets.tests.data.openml") / f"id_{number}"
    (path,) = [each for each in folder.iterdir() if each.name.startswith("data-v1-dl-")]
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.strip().lower() == "@data")
    names = [line.split()[1].strip("'\"") for line in lines[:begin] if line.lower().startswith("@attribute")]
    rows = [row for row in csv.reader(lines[begin + 1 :]) if len(row) == len(names)]
    cleaned = [[None if cell.strip("' ") in ("?", "_", "") else cell.strip("' ") for cell in row] for row in rows]
    return pd.DataFrame(cleaned, columns=names)


def _of_statsmodels(*path: str, separator: str = ",") -> pd.DataFrame:
    return pd.read_csv(
        str(files("statsmodels").joinpath(*path)), sep=separator, quotechar="'" if separator == "\t" else '"'
    )


def _numbers(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in names})


def _breast_cancer() -> pd.DataFrame:
    return load_breast_cancer(as_frame=True).frame.rename(columns={"target": TARGET})


def _titanic() -> pd.DataFrame:
    frame = _numbers(_openml(40945), "pclass", "age", "sibsp", "parch", "fare", "survived")
    return frame[["pclass", "sex", "age", "sibsp", "parch", "fare", "embarked"]].assign(**{TARGET: frame["survived"]})


def _penguins() -> pd.DataFrame:
    measured = ["culmen_length_mm", "culmen_depth_mm", "flipper_length_mm", "body_mass_g"]
    frame = _numbers(_openml(42585), *measured)
    on_dream = (frame["island"] == "Dream").astype(int)
    return frame[[*measured, "sex"]].assign(**{TARGET: on_dream})


def _autos() -> pd.DataFrame:
    frame = _of_statsmodels("gam", "tests", "results", "autos.csv")
    kept = ["loss", "fuel", "aspir", "doors", "style", "drive", "wb", "height", "bore", "stroke", "comp_ratio"]
    kept = [name for name in kept if name in frame.columns]
    price = frame["price"]
    frame = frame[price.notna()]
    return frame[kept].assign(**{TARGET: (price[price.notna()] > price.median()).astype(int)})


def _affairs() -> pd.DataFrame:
    frame = _of_statsmodels("datasets", "fair", "fair.csv")
    return frame.drop(columns="affairs").assign(**{TARGET: (frame["affairs"] > 0).astype(int)})


def _election() -> pd.DataFrame:
    frame = _of_statsmodels("datasets", "anes96", "anes96.csv", separator="\t")
    return frame.drop(columns="vote").assign(**{TARGET: frame["vote"].astype(int)})


def _births() -> pd.DataFrame:
    frame = _of_statsmodels("treatment", "tests", "results", "cataneo2.csv")
    kept = [
        "mmarried",
        "alcohol",
        "deadkids",
        "mage",
        "medu",
        "fage",
        "fedu",
        "nprenatal",
        "order",
        "prenatal1",
        "fbaby",
    ]
    smokes = frame["mbsmoke"]
    named = smokes.astype(str).str.lower()
    target = (named.isin(["smoker", "1", "yes"])).astype(int)
    return frame[kept].assign(**{TARGET: target})


def _chess() -> pd.DataFrame:
    frame = _openml(3)
    return frame.drop(columns="class").assign(**{TARGET: (frame["class"] == "won").astype(int)})


_MADE: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
    "breast cancer": ("scikit-learn: malignant or benign, of 30 measurements", _breast_cancer),
    "titanic": ("scikit-learn (OpenML 40945): who survived", _titanic),
    "penguins": ("scikit-learn (OpenML 42585): from Dream island or not", _penguins),
    "chess": ("scikit-learn (OpenML 3): king and rook against king and pawn, won or not", _chess),
    "autos": ("statsmodels: dearer than the median car or not", _autos),
    "affairs": ("statsmodels: any affairs or none, of answers to a survey", _affairs),
    "election": ("statsmodels: how people voted in 1996", _election),
    "births": ("statsmodels: whether the mother smoked", _births),
}


def tables() -> list[Table]:
    """All of them."""
    return [Table(name, about, made().reset_index(drop=True)) for name, (about, made) in _MADE.items()]
