"""Where the site's data lie. Loads no numpy, so that the agent starts lightly; only the worker reads the data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.csv_form import Decimal, Encoding, Separator

DataKind = Literal["auto", "csv", "parquet", "npz", "images", "plink", "code"]
Split = Literal["shuffled", "keyed"]
"""How a site sets test data aside of its training data: a share of all by a shuffle of them, in which one more moves
others; or each example, or whoever has several, by a keyed hash of its own (`sides`)."""
PLINK_FILES = (".bed", ".bim", ".fam")

_SUFFIXES: dict[str, DataKind] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
}


class Tolerance(Frozen):
    """Which bad cells a site's tables may have: of another kind than the schema says, or out of its bounds.

    Attributes:
        cells: the largest share of each column's.
        then: `impute`: they count as missing; `drop`: their rows are left out, as those of a bad target always are.
        tell: whether the sums of a preparation have their number, beside the other sites'.
    """

    cells: float = Field(default=0.0, ge=0, le=0.5)
    then: Literal["impute", "drop"] = "impute"
    tell: bool = False


class TableOptions(Frozen):
    """How a site's CSV files are written, and what its tables may lack.

    Attributes:
        separator: between values; `auto`: by the header line.
        decimal: the sign in numbers; `auto`: by the numbers.
        encoding: of the text.
    """

    separator: Separator = "auto"
    decimal: Decimal = "auto"
    encoding: Encoding = "utf-8"
    tolerance: Tolerance = Tolerance()

    @classmethod
    def of(cls, text: str) -> TableOptions:
        """What a text in YAML says; nothing: the defaults.

        Raises:
            HanseError: INVALID_INPUT naming the option, its value and what was expected.
        """
        given = parse_yaml(text, "HANSE_TABLE") if text.strip() else {}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"HANSE_TABLE: {explain(error)}", hint="see docs/site-administrator.md"
            ) from None


class DataSettings(Frozen):
    """The site's data.

    Attributes:
        train: a CSV, Parquet or NPZ file, a folder with one subfolder of images a class, or the path of .bed, .bim and
            .fam files without the ending; None for kind `code`.
        test: the same for test data; None: `test_fraction` of `train` is set aside by `split_seed`.
        test_fraction: share of the examples set aside where there is no test file; 0 for none.
        split: how they are set aside.
        kind: of both; `auto` goes by the name's ending; `code` calls `load()` of the site's own code file.
        max_bytes: a larger file is refused before it is read, but for genotypes, which are read piece by piece.
        phenotypes, covariates: files with columns FID IID ... beside genotypes.
        table: of CSV and Parquet files.
    """

    train: Path | None = None
    test: Path | None = None
    test_fraction: float = Field(default=0.2, ge=0, lt=1)
    split_seed: int = 0
    split: Split = Field(default="shuffled", exclude_if=lambda given: given == "shuffled")  # since 0.2.0
    kind: DataKind = "auto"
    max_bytes: int = Field(default=64 << 30, ge=1)
    phenotypes: Path | None = None
    covariates: Path | None = None
    table: TableOptions = TableOptions()

    @property
    def keyed(self) -> bool:
        """Whether test data are set aside by keyed hashes, if the site's own code gives none."""
        return self.split == "keyed" and self.test is None and self.test_fraction > 0

    @property
    def prefix(self) -> Path:
        """The genotypes' files without the ending.

        Raises:
            HanseError: INVALID_INPUT where none are given.
        """
        if self.train is None:
            raise HanseError(ErrorCode.INVALID_INPUT, "data: none given, the prefix of .bed, .bim and .fam expected")
        return self.train.with_suffix("") if self.train.suffix in PLINK_FILES else self.train

    @property
    def is_genotypes(self) -> bool:
        """Whether studies are computed on the data, and no model is trained."""
        if self.kind != "auto" or self.train is None:
            return self.kind == "plink"
        path = self.train
        return path.suffix in PLINK_FILES or (not path.exists() and Path(f"{path}.bed").exists())

    def kind_of(self, path: Path) -> DataKind:
        """The kind of one file or folder.

        Raises:
            HanseError: INVALID_INPUT where the ending says nothing.
        """
        if self.kind != "auto":
            return self.kind
        if self.is_genotypes:
            return "plink"
        if path.is_dir():
            return "images"
        found = _SUFFIXES.get(path.suffix.lower())
        if found is None:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"data file {path.name}: the ending {path.suffix!r} is none of {', '.join(_SUFFIXES)}, no folder",
                hint="rename it, or say which kind it is",
            )
        return found


def split_of(privacy: Privacy | None) -> Split:
    """How test data are set aside under a job's section `privacy`: what hides an example, or a person, must not move
    others with it. What hides all that a site contributes need not care who is in it."""
    return "keyed" if privacy is not None and privacy.mechanism == "dp_sgd" else "shuffled"
