"""Data files with a canary in each place where content can stand, by reader: what a person's name would be in life.

Each place makes its reader refuse the file, or is read whole: in both cases the canary may be nowhere in what leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from adversary import other_frameworks
from adversary.other_frameworks import Reply
from adversary.own_loops import loop_that
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.pipeline.in_hand import InHand
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import ArraySchema, Column, DataSchema, GenotypesSchema, OpenSchema, TabularSchema
from plink_files import random_copies, write_plink

CANARY = "Canary-7f3a"
NUMBER = 77347734.5
"""A canary among numbers."""
SHOWN = (CANARY, "7734773", "7.73477e+07")
TABLE = TabularSchema(features=(Column(name="age", maximum=120), Column(name="beds")), target="ill")
OF_PEOPLE = TABLE.model_copy(update={"unit": "patient"})
DATED = TABLE.model_copy(update={"features": (*TABLE.features, Column(name="seen", kind="date"))})
LABELLED = TabularSchema.model_validate({**TABLE.model_dump(), "labels": ["well", "ill"]})
ARRAYS = ArraySchema(shape=(2,), classes=2, maximum=1.0)
GENOTYPES = GenotypesSchema(phenotypes=("ill",), covariates=("AGE",))
GOOD = "age,beds,ill\n40,1,0\n50,2,1\n60,3,0\n70,4,1\n"
FAM = "F{0} I{0} 0 0 {1} {2}"


@dataclass(frozen=True)
class Place:
    """Where a canary stands.

    Attributes:
        make: writes the data into a folder: how a site is told of them.
        code: text of the site's own code; empty for none.
        quoted: whether the site's own log shows the canary.
        kind: of the task that is asked.
        config: of the task, beside what it always has.
        reply: how code of another framework answers; None: it is not that.
        loop: makes the worker of a team's own loop; None: it is not that.
    """

    name: str
    schema: DataSchema
    make: Callable[[Path], DataSettings]
    code: str = ""
    studies: bool = False
    quoted: bool = True
    kind: TaskKind = TaskKind.TRAIN
    config: Mapping[str, Any] = field(default_factory=dict)
    reply: Reply | None = None
    loop: Callable[[], Any] | None = None

    @property
    def reader(self) -> str:
        """What reads the data there."""
        return self.name.partition(":")[0]

    @property
    def hidden(self) -> bool:
        """Whether the same may be asked under masks, by a hub that knows no more than `attacked`'s."""
        return not self.studies and self.kind is not TaskKind.PREPARE


def csv(name: str, text: str | bytes, schema: DataSchema = TABLE) -> Place:
    def make(folder: Path) -> DataSettings:
        path = folder / "ward.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return DataSettings(train=path)

    return Place(f"csv: {name}", schema, make)


def parquet(name: str, **columns: list[object]) -> Place:
    def make(folder: Path) -> DataSettings:
        path = folder / "ward.parquet"
        pd.DataFrame(columns).to_parquet(path)
        return DataSettings(train=path)

    return Place(f"parquet: {name}", TABLE, make)


def npz(name: str, **arrays: object) -> Place:
    def make(folder: Path) -> DataSettings:
        path = folder / "ward.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return DataSettings(train=path)

    return Place(f"npz: {name}", ARRAYS, make)


def raw(name: str, file: str, data: bytes, schema: DataSchema = TABLE) -> Place:
    def make(folder: Path) -> DataSettings:
        (folder / file).write_bytes(data)
        return DataSettings(train=folder / file)

    return Place(name, schema, make)


def images(name: str, files: dict[str, tuple[int, int] | None], classes: int = 2) -> Place:
    """Images by path under the folder: their size, or None for a file that is none."""

    def make(folder: Path) -> DataSettings:
        for path, size in files.items():
            (folder / "scans" / path).parent.mkdir(parents=True, exist_ok=True)
            if size is None:
                (folder / "scans" / path).write_bytes(CANARY.encode())
            else:
                Image.new("L", size).save(folder / "scans" / path)
        return DataSettings(train=folder / "scans")

    return Place(f"images: {name}", ArraySchema(shape=(4, 4), classes=classes), make)


def code(name: str, body: str, *, kind: TaskKind = TaskKind.TRAIN, **config: Any) -> Place:
    text = "import numpy as np\nfrom hanse_fabric.errors import ErrorCode, HanseError\n" + body
    return Place(
        f"site code: {name}", OpenSchema(), lambda _: DataSettings(kind="code", test_fraction=0), code=text, kind=kind,
        config=config,
    )  # fmt: skip


def trained(name: str, returned: str, *, first: str = "", **config: Any) -> Place:
    """Code whose `train` returns these entries; by its `initialize` the model has others, too."""
    body = LOAD + f"def train(model, data, config):\n    return {returned}, 6, {{}}\n"
    body += f"def initialize(config):\n    return {first}\n" if first else ""
    return code(name, body, **config)


def units(name: str, manifest: str | bytes) -> Place:
    """A folder of images, with a list that says whose each is."""
    base = images(name, {"a/1.png": (4, 4), "b/2.png": (4, 4)})

    def make(folder: Path) -> DataSettings:
        made = base.make(folder)
        (folder / "scans" / "units.csv").write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
        return made

    schema = ArraySchema(shape=(4, 4), classes=2, unit="patient")
    return Place(f"list of whose images are: {name}", schema, make)


def foreign(name: str, reply: Reply) -> Place:
    """Code of another framework, with a table that is good."""
    base = csv("good", GOOD)
    return Place(f"{reply.kind}: {name}", TABLE, base.make, code="# another framework's\n", reply=reply)


def loop(name: str, answer: Callable[[InHand], None], *, first: Callable[[InHand], None] | None = None) -> Place:
    """A team's own loop (`hanse.join`), which begins with a model of more entries where `first` says so."""
    model = {"name": "logistic"} | ({"state": [{"match": "head.*", "keep": "local"}]} if first else {})
    return Place(
        f"own loop: {name}", OpenSchema(), lambda _: DataSettings(kind="code", test_fraction=0),
        loop=lambda: loop_that(answer, first), config={"model": model},
    )  # fmt: skip


def prepared(name: str, text: str, *rules: dict[str, Any], schema: DataSchema | None = None) -> Place:
    """A table of which a preparation asks what no cell may be."""
    base = csv(name, text, schema or WARDS)
    return replace(
        base, name=f"preparation: {name}", kind=TaskKind.PREPARE, config={"prepare": list(rules)}
    )  # fmt: skip


def plink(
    name: str, *, bim: str = "", fam: str = "", pheno: str = "", cov: str = "", bed: bytes = b""
) -> Place:  # fmt: skip
    """Files of genotypes of which one is replaced, or has a line more at its end."""

    def make(folder: Path) -> DataSettings:
        people = [FAM.format(at, 1 + at % 2, 1 + at // 2 % 2) for at in range(12)]
        prefix = write_plink(folder / "ward", random_copies(6, 12), people=people)
        for ending, more in (("bim", bim), ("fam", fam)):
            path = Path(f"{prefix}.{ending}")
            path.write_text("\n".join([*path.read_text().splitlines()[:-1], more]) + "\n" if more else path.read_text())
        if bed:
            Path(f"{prefix}.bed").write_bytes(bed)
        beside = {"pheno": "FID IID ill\n", "cov": "FID IID AGE\n"}
        for ending, given in (("pheno", pheno), ("cov", cov)):
            head = beside[ending]
            rows = [f"F{at} I{at} {1 + at % 2}\n" for at in range(12)]
            (folder / f"ward.{ending}").write_text(given or head + "".join(rows))
        return DataSettings(
            train=prefix, kind="plink", phenotypes=folder / "ward.pheno", covariates=folder / "ward.cov"
        )

    return Place(f"plink: {name}", GENOTYPES, make, studies=True)


WARDS = TABLE.model_copy(
    update={"features": (Column(name="age", maximum=120), Column(name="ward", kind="category", values=("a", "b")))}
)
AGE, WARD = {"name": "age", "kind": "number"}, {"name": "ward", "kind": "category", "values": ["a", "b"]}
LOAD = "def load():\n    return {'train': (np.ones((6, 2)), np.arange(6) % 2)}\n"
LOCAL = {"state": [{"match": "head.*", "keep": "local"}]}


def pushes(model: dict[str, Any]) -> Callable[[InHand], None]:
    return lambda task: task.push(model, 6, {})


TESTED = LOAD.replace("}\n", ", 'test': (np.ones((6, 2)), np.arange(6) % 2)}\n")
_QUIET = {
    "csv: whose a row is", "csv: a line too long", "csv: bytes that are no text", "parquet: the name of a column",
    "parquet: a file that is none", "npz: text in place of numbers", "npz: objects", "npz: a file that is none",
    "plink: a line too short", "plink: a byte that is no text", "plink: a person whom the genotypes lack",
    "plink: a row too long under a name", "plink: genotypes that are none", "site code: text in place of numbers",
    "preparation: a value that is none of the schema's", "preparation: beside a missing number",
    "list of whose images are: whose an image is that has two lines",
    "list of whose images are: whose another image is",
    "list of whose images are: bytes that are no text", "own loop: an entry that the model lacks, and no answer then",
    "own loop: the shape of an entry, and no answer then", "own loop: what is no model",
    "flower: records of a reply",
}  # fmt: skip
"""Where the site's own log does not quote the canary either: it says where the fault is."""
_PLACES: tuple[Place, ...] = (
    csv("a cell of a feature", GOOD + f"{CANARY},1,0\n"),
    csv("a cell of the target", GOOD + f"30,1,{CANARY}\n"),
    csv("a number out of range", GOOD + f"{NUMBER},1,0\n"),
    csv("the name of a column that nobody declared, beside a missing one", f"age,{CANARY},ill\n40,1,0\n"),
    csv("the name of a column in a project without a schema", f"{CANARY},y\n1,0\nx,1\n", OpenSchema()),
    csv("a name that stands twice", f"age,age,beds,ill\n{CANARY},1,2,0\n"),
    csv("whose a row is", f"patient,age,beds,ill\n{CANARY},1,2,0\nb,1,2,0\n", OF_PEOPLE),
    csv("a line too long", GOOD + f"{CANARY},1,0,1,1\n"),
    csv("a header that two separators fit", f"{CANARY};age,beds;ill\n1;2;3\n"),
    csv("a number that is none among decimal commas", f"age;beds;ill\n40,5;1;0\n{CANARY};1;0\n"),
    csv("a number with a point among decimal commas", f"age;beds;ill\n40,5;1;0\n{NUMBER};1;0\n"),
    csv("a date", f"age,beds,seen,ill\n40,1,2026-01-01,0\n50,1,{CANARY},0\n", DATED),
    csv("a date with slashes", f"age,beds,seen,ill\n40,1,1/31/2026,0\n50,1,{CANARY},0\n", DATED),
    csv("a class", f"age,beds,ill\n40,1,well\n50,1,{CANARY}\n", LABELLED),
    csv("bytes that are no text", GOOD.encode() + CANARY.encode() + b"\xff\xfe,1,0\n"),
    parquet("a cell", age=[CANARY, "1"], beds=[1, 2], ill=[0, 1]),
    parquet("the name of a column", **{"age": [1, 2], CANARY: [1, 2], "ill": [0, 1]}),
    parquet("a number out of range", age=[NUMBER, 2.0], beds=[1, 2], ill=[0, 1]),
    raw("parquet: a file that is none", "ward.parquet", b"PAR1" + CANARY.encode() + b"PAR1"),
    npz("the name of an array", **{CANARY: np.ones((4, 2))}),
    npz("text in place of numbers", x=np.array([[CANARY, "1"]] * 4), y=np.arange(4) % 2),
    npz("objects", x=np.array([[CANARY, 1]] * 4, dtype=object), y=np.arange(4) % 2),
    npz("a number out of range", x=np.full((4, 2), NUMBER), y=np.arange(4) % 2),
    npz("a label", x=np.ones((4, 2)), y=np.array([0, 1, 0, 77347734])),
    raw("npz: a file that is none", "ward.npz", CANARY.encode(), ARRAYS),
    images("the name of a file that is no image", {f"a/{CANARY}.png": None, "b/1.png": (4, 4)}),
    images("the name of a file of another size", {f"a/{CANARY}.png": (3, 5), "b/1.png": (4, 4)}),
    images("the name of a class", {f"{CANARY}/0.png": (4, 4)}, classes=3),
    plink("a chromosome", bim=f"{CANARY} rs5 0 6 A G"),
    plink("a position", bim=f"1 rs5 0 {CANARY} A G"),
    plink("an allele", bim=f"1 rs5 0 6 {CANARY} {CANARY}"),
    plink("a person who stands twice", fam=f"{CANARY} I 0 0 1 1\n{CANARY} I 0 0 1 1"),
    plink("a line too short", fam=f"{CANARY} I 0 0"),
    plink("a byte that is no text", fam=f"{CANARY} I\x00 0 0 1 1"),
    plink("a name in place of a number", pheno=f"FID IID ill\nF0 I0 {CANARY}\n"),
    plink("a number out of range", pheno=f"FID IID ill\nF0 I0 {NUMBER}\nF1 I1 2\n"),
    plink("a header", pheno=f"{CANARY} IID ill\nF0 I0 1\n"),
    plink("a covariate", cov=f"FID IID AGE\nF0 I0 {CANARY}\n"),
    plink("a covariate's name", cov=f"FID IID {CANARY}\nF0 I0 1\n"),
    plink("a covariate's name that stands twice", cov=f"FID IID AGE {CANARY} {CANARY}\nF0 I0 1 1 1\n"),
    plink("a person whom the genotypes lack", cov=f"FID IID AGE\n{CANARY} I0 1\n"),
    plink("a row too long under a name", cov=f"FID IID AGE {CANARY}\nF0 I0 1 2 3\n"),
    plink("genotypes that are none", bed=CANARY.encode()),
    code("what load raises", f"def load():\n    raise ValueError('{CANARY}')\n"),
    code("what load returns", f"def load():\n    return '{CANARY}'\n"),
    code("text in place of numbers", f"def load():\n    return {{'train': (np.array([['{CANARY}']]), np.ones(1))}}\n"),
    code("what train raises", LOAD + f"def train(model, data, config):\n    raise KeyError('{CANARY}')\n"),
    code(
        "an error of ours that train raises",
        LOAD
        + f"def train(model, data, config):\n    raise HanseError(ErrorCode.POLICY, '{CANARY}', hint='{CANARY}')\n",
    ),
    code("what train returns", LOAD + f"def train(model, data, config):\n    return '{CANARY}'\n"),
    code(
        "a metric that is no number",
        LOAD + f"def train(model, data, config):\n    return model, 6, {{'{CANARY}': '{CANARY}'}}\n",
    ),
    trained(
        "the name of an entry that the model lacks", f"{{'weight': np.ones(2, np.float32), '{CANARY}': np.ones(2)}}"
    ),
    trained("the name of an entry in place of the model's", f"{{'{CANARY}': np.ones(2, np.float32)}}"),
    trained("the shape of an entry", "{'weight': np.ones((0, 77347734), np.float32)}"),
    trained(
        "the name of an entry that the first model has",
        "model",
        model=LOCAL,
        first=f"{{'weight': np.ones(2, np.float32), 'head.x': np.ones(1), '{CANARY}': np.ones(2)}}",
    ),
    trained(
        "the names of entries, beside a rule that fits none",
        "model",
        model={"state": [*LOCAL["state"], {"match": "tail.*", "keep": "frozen"}]},
        first=f"{{'weight': np.ones(2, np.float32), 'head.x': np.ones(1), '{CANARY}': np.ones(2)}}",
    ),
    trained(
        "the shape of an entry that the first model has",
        "model",
        model=LOCAL,
        first="{'weight': np.ones((0, 77347734), np.float32), 'head.x': np.ones(1)}",
    ),
    code(
        "what test raises",
        TESTED + f"def test(model, data, config):\n    raise KeyError('{CANARY}')\n",
        kind=TaskKind.EVALUATE,
    ),
    code(
        "what test returns",
        TESTED + f"def test(model, data, config):\n    return '{CANARY}', {{}}\n",
        kind=TaskKind.EVALUATE,
    ),
    code(
        "a metric of test",
        TESTED + f"def test(model, data, config):\n    return 6, {{'{CANARY}': float('nan')}}\n",
        kind=TaskKind.EVALUATE,
    ),
    replace(csv("a cell, when a model is evaluated", GOOD + f"{CANARY},1,0\n"), kind=TaskKind.EVALUATE),
    prepared(
        "a value that is none of the schema's",
        f"age,ward,ill\n40,a,0\n50,{CANARY},1\n",
        AGE,
        WARD | {"unknown": "refuse"},
    ),
    prepared("beside a missing number", f"age,ward,ill\n40,a,0\n,{CANARY},1\n", AGE | {"missing": "refuse"}, WARD),
    prepared("a cell that is no number", f"age,ward,ill\n40,a,0\n{CANARY},b,1\n", AGE, WARD),
    units("a path that is no image's", f"file,patient\na/1.png,x\nb/2.png,y\na/{CANARY}.png,x\n"),
    units("whose an image is that has two lines", f"file,patient\na/1.png,x\nb/2.png,y\na/1.png,{CANARY}\n"),
    units("the name of a column", f"file,{CANARY}\na/1.png,x\nb/2.png,y\n"),
    units("whose another image is", f"file,patient\na/1.png,{CANARY}\n"),
    units("more cells than columns", f"file,patient\na/1.png,x,{CANARY}\nb/2.png,y\n"),
    units("bytes that are no text", f"file,patient\na/1.png,{CANARY}".encode() + b"\xff\xfe\n"),
    *(foreign(name, reply) for name, reply in other_frameworks.replies(CANARY, 77347734).items()),
    loop("an entry that the model lacks, and no answer then", pushes({"weight": np.ones(2), CANARY: np.ones(2)})),
    loop("the shape of an entry, and no answer then", pushes({"weight": np.ones((0, 77347734))})),
    loop("what is no model", pushes({"weight": np.array([CANARY, CANARY])})),
    loop(
        "an entry that its first model has",
        pushes({"weight": np.ones(2, np.float32)}),
        first=pushes({"weight": np.ones(2, np.float32), "head.x": np.ones(1), CANARY: np.ones(2)}),
    ),
)
PLACES = tuple(replace(place, quoted=place.name not in _QUIET) for place in _PLACES)
