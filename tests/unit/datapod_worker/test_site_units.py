"""Whose images of a folder and examples of a site's own code are: read, or refused in words that name nobody."""

import pytest
from PIL import Image

from hanse_datapod.data.load import fingerprint, read_site_data
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import ArraySchema, OpenSchema

SCANS = ArraySchema(shape=(3, 4), classes=2, unit="patient")
LISTED = "file,patient\nmalign/m0.png,mrs-b\nbenign/b0.png,mr-a\nbenign/b1.png,mr-a\nbenign/b2.png,mrs-b\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "scans"
    for name in ("benign/b0", "benign/b1", "benign/b2", "malign/m0"):
        path = made / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 3), color=100).save(path)
    (made / "units.csv").write_text(LISTED)
    return made


def read(folder, schema=SCANS, **settings):
    return read_site_data(DataSettings(train=folder, **settings), schema)


def test_whose_an_image_is_is_read_from_the_folders_list(folder):
    data = read(folder, test_fraction=0)
    first, second, third, fourth = data.train.whose
    assert first == second != third == fourth
    assert data.train.units == 2
    without = read(folder, ArraySchema(shape=(3, 4), classes=2), test_fraction=0)
    assert without.train.units == 4
    assert fingerprint(data) != fingerprint(without)


def test_a_list_of_a_spreadsheet_with_other_columns_is_read_as_well(folder):
    lines = [f"{line},MRI" for line in LISTED.splitlines()]
    (folder / "units.csv").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    assert read(folder, test_fraction=0).train.units == 2


def test_nobody_has_images_in_training_and_among_the_test_data(folder):
    data = read(folder, test_fraction=0.5)
    assert (len(data.train), len(data.test)) == (2, 2)
    assert (data.train.units, data.test.units) == (1, 1)


def test_of_test_images_it_does_not_matter_whose_they_are(folder, tmp_path):
    other = tmp_path / "other"
    (other / "benign").mkdir(parents=True)
    (other / "malign").mkdir()
    Image.new("L", (4, 3)).save(other / "benign" / "x.png")
    data = read(folder, test=other)
    assert (data.train.units, len(data.test)) == (2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "patient, which says whose an example is, is missing"),
        (LISTED.replace("patient", "person"), "one column patient was expected"),
        (LISTED.replace("file", "image"), "one column file was expected"),
        (LISTED.replace("file,patient", "file,patient,patient"), "one column patient was expected"),
        (LISTED.replace("malign/m0.png,mrs-b\n", ""), "a line for each image was expected, image 4 has none"),
        (LISTED + "benign/b9.png,mr-a\n", "line 6: the path of an image from the folder was expected"),
        (LISTED + "../scans/benign/b0.png,mr-a\n", "line 6: the path of an image from the folder was expected"),
        (LISTED + "benign/b0.png,mrs-b\n", "line 6: this image has a line already"),
        (LISTED.replace("mr-a\nbenign/b2", " \nbenign/b2"), "line 4: patient: a value was expected"),
        (LISTED.replace("benign/b1.png,mr-a", "benign/b1.png"), "line 4: patient: a value was expected"),
        (LISTED.replace("mr-a\nbenign/b2", "mr-a,x\nbenign/b2"), "line 4: the path of an image"),
        (
            LISTED.replace("b2.png,mrs-b", "b2.png,c").replace("b1.png,mr-a", "b1.png,d"),
            "each image has a value of",
        ),
    ],
)
def test_a_list_that_does_not_say_whose_each_image_is_is_refused_and_names_nobody(folder, text, message):
    (folder / "units.csv").unlink()
    if text is not None:
        (folder / "units.csv").write_text(text)
    with pytest.raises(HanseError, match=message) as caught:
        read(folder)
    assert caught.value.code is ErrorCode.SCHEMA_MISMATCH
    assert not any(name in caught.value.message for name in ("mr-a", "mrs-b", "b0.png", "b9", "m0.png"))
    assert str(folder) in caught.value.found


def test_a_list_that_is_no_text_or_too_large_is_refused(folder):
    (folder / "units.csv").write_bytes(LISTED.encode("utf-16"))
    with pytest.raises(HanseError, match=r"units\.csv: it is not a CSV file in UTF-8"):
        read(folder)
    (folder / "units.csv").write_text(LISTED + " " * 1000)
    with pytest.raises(HanseError, match=r"units\.csv: more than the 1000 bytes"):
        read(folder, max_bytes=1000)


def loaded(tmp_path, returned, schema):
    code = tmp_path / "mine.py"
    code.write_text(
        f"import numpy as np\nx, y = np.ones((4, 2)), np.zeros(4, int)\ndef load():\n    return {returned}\n"
    )
    return read_site_data(DataSettings(kind="code", test_fraction=0), schema, code)


VISITS = ArraySchema(shape=(2,), classes=2, unit="patient")


def test_the_sites_own_load_says_whose_its_examples_are(tmp_path):
    for whose in ("['a', 'b', 'a', 'b']", "np.array([7, 1, 7, 1])"):
        data = loaded(tmp_path, f"{{'train': (x, y, {whose}), 'test': (x, y)}}", VISITS)
        assert data.train.whose.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
        assert (data.train.units, len(data.test)) == (2, 4)
    data = loaded(tmp_path, "{'train': (x, y, [1, 2, 1, 2]), 'test': (x, y, [1, 2, 1, 2])}", VISITS)
    assert data.test.whose is None


@pytest.mark.parametrize(
    ("returned", "schema", "message"),
    [
        ("{'train': (x, y)}", VISITS, "patient, which says whose an example is, is missing"),
        ("{'train': (x, y, [1, 2, 1])}", VISITS, "one value for each example was expected"),
        ("{'train': (x, y, [1, 2, 3, 4])}", VISITS, "each example has a value of its own"),
        ("{'train': (x, y, [None, 2, 3, 4])}", VISITS, "patient as numbers or texts was expected"),
        ("{'train': (x, y, [float('nan'), 2, 2, 2])}", VISITS, "patient as numbers or texts was expected"),
        ("{'train': (x, y, [1, 1, 2, 2])}", ArraySchema(shape=(2,), classes=2), r"a pair \(x, y\) of arrays was"),
        ("{'train': (x, y, [1, 1, 2, 2])}", OpenSchema(), r"a pair \(x, y\) of arrays was"),
        ("{'train': None}", VISITS, r"\['train'\]: a pair \(x, y\) of arrays was"),
    ],
)
def test_code_that_does_not_say_it_or_says_it_in_vain_is_refused(tmp_path, returned, schema, message):
    with pytest.raises(HanseError, match=message):
        loaded(tmp_path, returned, schema)
