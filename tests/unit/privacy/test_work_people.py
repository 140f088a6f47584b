"""How many people two states of a site's data differ by."""

import random

import numpy as np
import pytest

from hanse_privacy.works.people import rows, sketch, sketches
from hanse_privacy.works.people_changed import changed, parts_of


def table(people):
    return sketch(str(person).encode() for person in people)


@pytest.mark.parametrize(("gone", "come"), [(0, 0), (1, 0), (0, 1), (5, 5), (9, 2), (100, 90)])
def test_people_who_came_and_went_are_counted(gone, come):
    before = list(range(3000))
    after = [*before[gone:], *range(10_000, 10_000 + come)]
    random.Random(1).shuffle(after)
    assert changed(table(before), table(after)) == max(gone, come)


def test_one_of_two_who_are_alike_is_counted():
    assert changed(table([1, 1, 1, 2]), table([1, 1, 2])) == 1


def test_of_thousands_it_is_known_that_they_are_many():
    assert changed(table(range(5000)), table(range(2500, 7500))) is None


def test_a_changed_entry_of_one_row_is_one_person():
    x, y = np.arange(60.0).reshape(20, 3), np.arange(20)
    after = x.copy()
    after[7, 1] += 1e-9
    assert changed(sketch(rows(x, y)), sketch(rows(after, y))) == 1


@pytest.mark.parametrize("second", [[], range(500, 600), range(90, 190)], ids=["nobody", "others", "some of the first"])
def test_parts_are_told_apart_and_are_the_whole_together(second):
    first, second = [str(at).encode() for at in range(100)], [str(at).encode() for at in second]
    assert parts_of(sketches([first, second])) == [sketch([*first, *second]), sketch(first), sketch(second)]
    whole, part, other = (
        changed(*both)
        for both in zip(*map(parts_of, (sketches([first, second]), sketches([first[7:], second[1:]]))), strict=True)
    )
    assert (whole, part, other) == (7 + bool(second), 7, int(bool(second)))
