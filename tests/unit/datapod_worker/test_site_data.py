"""Reading the site's data: what fits is read, what does not is refused with the place of the fault."""

import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hanse_datapod.data.load import fingerprint, read_site_data, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.people_changed import changed, parts_of
from hanse_schemas.schema import ArraySchema, Column, OpenSchema, TabularSchema

TABLE = TabularSchema(
    features=(Column(name="age", minimum=0, maximum=120), Column(name="beds", dtype="integer")), target="ill", classes=2
)
ARRAYS = ArraySchema(shape=(2,), classes=3, minimum=0, maximum=1)
GOOD = "age,beds,ill\n40,1,0\n50.5,2,1\n60,3,0\n70,4,1\n80,5,0\n"


def read(path, schema, **settings):
    return read_site_data(DataSettings(train=path, **settings), schema)


def csv(tmp_path, text):
    path = tmp_path / "ward.csv"
    path.write_text(text)
    return path


def npz(tmp_path, **arrays):
    path = tmp_path / "ward.npz"
    np.savez(path, **arrays)
    return path


def test_csv_and_parquet_of_the_same_table_are_the_same_data(tmp_path):
    path = csv(tmp_path, GOOD)
    pd.read_csv(path).to_parquet(tmp_path / "ward.parquet")
    one, two = (read(p, TABLE, test_fraction=0) for p in (path, tmp_path / "ward.parquet"))
    assert fingerprint(one) == fingerprint(two)
    assert one.train.x.dtype == np.float32
    assert one.train.y.tolist() == [0, 1, 0, 1, 0]


def test_the_test_fraction_is_set_aside_the_same_way_each_time(tmp_path):
    path = csv(tmp_path, GOOD)
    data = read(path, TABLE, test_fraction=0.4)
    assert (len(data.train), len(data.test), data.parted) == (3, 2, True)
    assert fingerprint(data) == fingerprint(read(path, TABLE, test_fraction=0.4))
    assert sorted([*data.train.x[:, 0], *data.test.x[:, 0]]) == [40, 50.5, 60, 70, 80]


def test_a_test_file_is_used_instead_of_a_fraction(tmp_path):
    path = csv(tmp_path, GOOD)
    data = read(path, TABLE, test=path)
    assert len(data.train) == len(data.test) == 5
    assert not data.parted


VISITS = TABLE.model_copy(update={"unit": "patient"})
OF_PATIENTS = "patient,age,beds,ill\nb,40,1,0\na,50,2,1\nb,60,3,0\nc,70,4,1\na,80,5,0\n"


def test_whose_a_row_is_is_read_from_tables_and_arrays(tmp_path):
    path = csv(tmp_path, OF_PATIENTS)
    pd.read_csv(path).to_parquet(tmp_path / "ward.parquet")
    arrays = npz(tmp_path, x=np.zeros((5, 2)), y=np.zeros(5, int), patient=np.array(["b", "a", "b", "c", "a"]))
    tables = [read(p, VISITS, test_fraction=0) for p in (path, tmp_path / "ward.parquet")]
    assert fingerprint(tables[0]) == fingerprint(tables[1]) != fingerprint(read(path, TABLE, test_fraction=0))
    for data in (*tables, read(arrays, ARRAYS.model_copy(update={"unit": "patient"}), test_fraction=0)):
        first, second, third, fourth, fifth = data.train.whose
        assert (first, second) == (third, fifth)
        assert len({first, second, fourth}) == data.train.units == 3


def test_nobody_has_rows_in_training_and_among_the_test_data(tmp_path):
    generator = np.random.default_rng(0)
    whose = generator.integers(0, 20, 100)
    path = npz(tmp_path, x=np.stack([whose / 20, whose / 20], axis=1), y=np.zeros(100, int), who=whose)
    data = read(path, ARRAYS.model_copy(update={"unit": "who"}), test_fraction=0.25)
    assert not set(data.train.x[:, 0]) & set(data.test.x[:, 0])
    assert (data.train.units, data.test.units) == (15, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "patient, which says whose an example is, is missing"),
        ("patient,age,beds,ill\na,40,1,0\n,50,2,1\n", "column patient, line 3: a value was expected"),
        ("patient,age,beds,ill\na,40,1,0\nb,50,2,1\n", "each line has a value of its own"),
    ],
)
def test_a_column_of_units_that_is_missing_empty_or_of_single_rows_is_refused(tmp_path, text, message):
    with pytest.raises(HanseError, match=message) as caught:
        read(csv(tmp_path, text), VISITS)
    assert caught.value.code is ErrorCode.SCHEMA_MISMATCH


WEIGHTED = TABLE.model_copy(update={"weight": "counts"})


def test_what_a_row_counts_is_read_with_it_and_not_of_test_data(tmp_path):
    path = csv(tmp_path, "counts;age;beds;ill\n0,5;40;1;0\n2;50;2;1\n0;60;3;0\n1;70;4;1\n")
    pd.DataFrame(
        {"counts": [0.5, 2, 0, 1], "age": [40, 50, 60, 70], "beds": [1, 2, 3, 4], "ill": [0, 1, 0, 1]}
    ).to_parquet(tmp_path / "ward.parquet")
    plain = read(path, TABLE, test_fraction=0)
    for each in (path, tmp_path / "ward.parquet"):
        data = read(each, WEIGHTED, test_fraction=0)
        assert data.train.weights.tolist() == [0.5, 2, 0, 1]
        assert fingerprint(data) != fingerprint(plain)
        table = read_site_tables(DataSettings(train=each, test_fraction=0), WEIGHTED).train
        assert table.parted(np.array([1, 3]), np.array([0]))[0].examples.weights.tolist() == [2, 1]
    split = read(path, WEIGHTED, test_fraction=0.5)
    assert sorted([*split.train.weights, *split.test.weights]) == [0, 0.5, 1, 2]
    tests = tmp_path / "tests.csv"
    tests.write_text(GOOD)
    assert read(path, WEIGHTED, test=tests).test.weights is None


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("1", ""), "column counts, line 3: a finite number was expected .found: an empty cell"),
        (("1", "-2"), "column counts, line 3: at least 0 was expected .found: -2"),
        (("1", "2e6"), r"column counts, line 3: at most 1e\+06 was expected .found: 2000000"),
        (("inf", "1"), "column counts, line 2: a finite number was expected"),
        (("much", "1"), "column counts, line 2: a finite number was expected .found: 'much'"),
        (None, "column counts is missing"),
    ],
)
def test_weights_that_are_missing_negative_or_huge_are_refused_with_column_and_line(tmp_path, cells, message):
    rows = ["age,beds,ill", "40,1,0", "50,2,1"]
    more = [""] * 3 if cells is None else [f",{cell}" for cell in ("counts", *cells)]
    path = csv(tmp_path, "".join(f"{row}{cell}\n" for row, cell in zip(rows, more, strict=True)))
    # What a site tolerates in features it does not of weights.
    settings = DataSettings(train=path, table={"tolerance": {"cells": 0.5}})
    for reads in (read_site_data, read_site_tables):
        with pytest.raises(HanseError) as caught:
            reads(settings, WEIGHTED)
        assert re.search(message, caught.value.whole), caught.value.whole
        assert caught.value.code is ErrorCode.SCHEMA_MISMATCH


def test_what_a_row_counts_is_known_of_its_person(tmp_path):
    """A work is not done again where one person's weight alone has changed."""
    states = []
    for weight in (1, 0):
        rows = "".join(f"{40 + at},{at},{at % 2},{weight if at == 7 else 1}\n" for at in range(20))
        tables = read_site_tables(
            DataSettings(train=csv(tmp_path, "age,beds,ill,counts\n" + rows), test_fraction=0), WEIGHTED
        )
        states.append(tables.fingerprint_and_people())
    (before, known), (after, then) = states
    assert before != after
    assert [changed(*both) for both in zip(parts_of(known), parts_of(then), strict=True)] == [
        1,
        1,
    ]  # all, and trained on


@pytest.mark.parametrize("weight", ["age", "ill", "patient"])
def test_a_weight_that_is_a_feature_the_target_or_the_unit_is_refused(weight):
    with pytest.raises(ValueError, match=r"weight: .* is a feature, the target or the unit"):
        TabularSchema.model_validate(VISITS.model_dump() | {"weight": weight})


@pytest.mark.parametrize("unit", ["age", "ill"])
def test_a_unit_that_is_a_feature_or_the_target_is_refused(unit):
    with pytest.raises(ValueError, match="expected a column of its own"):
        TabularSchema.model_validate(TABLE.model_dump() | {"unit": unit})
    with pytest.raises(ValueError, match="expected an array of its own"):
        ArraySchema.model_validate(ARRAYS.model_dump() | {"unit": "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,ill\n40,1\n", "column beds is missing .found: it has age, ill"),
        (GOOD + "old,1,0\n", "column age, line 7: a finite number was expected .found: 'old'"),
        (GOOD + "30,,0\n", "column beds, line 7: a finite number was expected .found: an empty cell"),
        (GOOD + "130,1,0\n", r"column age, line 7: at most 120 was expected .found: 130"),
        (GOOD + "-1,1,0\n", r"column age, line 7: at least 0 was expected .found: -1"),
        (GOOD + "30,1.5,0\n", r"column beds, line 7: a whole number was expected .found: 1.5"),
        (GOOD + "30,1,2\n", r"column ill, line 7: at most 1 was expected .found: 2"),
        ("age,beds,ill\n", "there are no examples"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_column_and_line(tmp_path, text, message):
    with pytest.raises(HanseError) as caught:
        read(csv(tmp_path, text), TABLE)
    assert re.search(message, caught.value.whole), caught.value.whole
    assert caught.value.code is ErrorCode.SCHEMA_MISMATCH


@pytest.mark.parametrize(("name", "content"), [
    ("ward.csv", b""), ("ward.csv", b"\xff\xfe\x00\x01\n"), ("ward.parquet", b"not parquet"), ("ward.npz", b"not npz"),
    ("ward.npz", b""), ("ward.xlsx", b"x"),
])  # fmt: skip
def test_a_malformed_file_is_refused_by_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(HanseError, match=f"data file .*{name}") as caught:
        read(path, TABLE)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(HanseError, match=r"nowhere\.csv: there is no such file") as caught:
        read(tmp_path / "nowhere.csv", TABLE)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_file_above_the_limit_is_refused_before_it_is_read(tmp_path):
    with pytest.raises(HanseError, match="more than the 10 bytes") as caught:
        read(csv(tmp_path, GOOD), TABLE, max_bytes=10)
    assert caught.value.code is ErrorCode.TOO_LARGE


X = np.full((4, 2), 0.5)
Y = np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "array y is missing .found: it has x"),
        ({"x": X, "y": Y[:3]}, r"in other shapes .found: \[4, 2\] and \[3\]"),
        ({"x": np.ones((4, 3)), "y": Y}, r"examples have shape \[3\], the schema says \[2\]"),
        ({"x": X, "y": Y + 1}, "y of example 3, value 1: a label from 0 to 2 was expected .found: 3"),
        ({"x": X, "y": Y + 0.5}, "y of example 1, value 1: a whole number.* was expected .found: 0.5"),
        ({"x": X * np.nan, "y": Y}, "x of example 1, value 1: a finite number was expected .found: nan"),
        ({"x": X * 4, "y": Y}, "x of example 1, value 1: at most 1 was expected .found: 2.0"),
        ({"x": X.astype(str), "y": Y}, "are not numbers"),
        ({"x": X.astype(object), "y": Y}, "not an NPZ file of plain arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_the_example(tmp_path, arrays, message):
    with pytest.raises(HanseError) as caught:
        read(npz(tmp_path, **arrays), ARRAYS)
    assert re.search(message, caught.value.whole), caught.value.whole


def test_an_npz_that_unpacks_to_more_than_the_limit_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((100_000, 2)), y=np.zeros(100_000))
    with pytest.raises(HanseError, match="unpacks to"):
        read(path, ARRAYS, max_bytes=100_000)


def images(folder, classes, size=(4, 3), mode="L"):
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        Image.new(mode, size, color=255 if mode == "L" else (255, 0, 0)).save(folder / name / f"{number}.png")
    return folder


def test_image_folders_are_read_by_class(tmp_path):
    folder = images(tmp_path / "scans", ["benign", "malign"])
    data = read(folder, ArraySchema(shape=(1, 3, 4), classes=2), test_fraction=0)
    assert data.train.x.shape == (2, 1, 3, 4)
    assert data.train.x.max() == 1.0
    assert data.train.y.tolist() == [0, 1]


def test_colour_images_have_three_channels_first(tmp_path):
    folder = images(tmp_path / "scans", ["0", "7"], mode="RGB")
    data = read(folder, ArraySchema(shape=(3, 3, 4), classes=10), test_fraction=0)
    assert data.train.x[0].mean(axis=(1, 2)).tolist() == [1, 0, 0]
    assert data.train.y.tolist() == [0, 7]


def test_bad_image_folders_are_refused(tmp_path):
    folder = images(tmp_path / "scans", ["benign", "malign"])
    with pytest.raises(HanseError, match="2 subfolders, the schema says 3 classes") as caught:
        read(folder, ArraySchema(shape=(3, 4), classes=3))
    assert caught.value.found == f"benign, malign, in {folder}"
    with pytest.raises(HanseError, match=r"image 1: 5 x 5 pixels .* were expected") as caught:
        read(folder, ArraySchema(shape=(5, 5), classes=2))
    assert re.search(r"3 x 4 in .*benign/0\.png", caught.value.found)
    (folder / "benign" / "0.png").write_bytes(b"no image")
    with pytest.raises(HanseError, match="image 1: it cannot be read") as caught:
        read(folder, ArraySchema(shape=(3, 4), classes=2))
    assert "benign/0.png" in caught.value.found


def test_the_sites_own_load_is_called(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("import numpy as np\ndef load():\n    return {'train': (np.ones((6, 2)), np.zeros(6, int))}\n")
    data = read_site_data(DataSettings(kind="code", test_fraction=0.5), ARRAYS, code)
    assert (len(data.train), len(data.test)) == (3, 3)
    code.write_text("def load():\n    return 3\n")
    with pytest.raises(HanseError, match=r"load\(\): a mapping with `train`"):
        read_site_data(DataSettings(kind="code"), OpenSchema(), code)
    code.write_text("import numpy as np\ndef load():\n    return np.ones((600, 2)), np.zeros(600, int)\n")
    with pytest.raises(HanseError, match=r"load\(\): a mapping with `train`") as caught:
        read_site_data(DataSettings(kind="code"), OpenSchema(), code)
    assert caught.value.found == "a tuple of 2: an array of shape [600, 2], an array of shape [600]"
    assert "\n" not in caught.value.whole
