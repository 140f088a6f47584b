"""Models in the forms that people have them in, as arrays by name and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hanse.arrays import by_name, in_form
from hanse_fabric.errors import HanseError


def nested():
    return {
        "body": [{"weight": torch.ones(2, 3, dtype=torch.bfloat16)}, {"weight": np.zeros((3, 2))}],
        "head": (np.float16(1.5), 2.0, np.arange(3)),
        "seen": np.array(True),
        "big": np.ones(2, ">f4"),
    }


def test_a_nested_model_has_a_name_for_each_array_and_comes_back_in_its_form() -> None:
    arrays = by_name(nested())
    assert {name: (str(array.dtype), array.shape) for name, array in arrays.items()} == {
        "body.0.weight": ("float32", (2, 3)), "body.1.weight": ("float64", (3, 2)), "head.0": ("float16", ()),
        "head.1": ("float64", ()), "head.2": ("int64", (3,)), "seen": ("bool", ()), "big": ("float32", (2,)),
    }  # fmt: skip
    changed = {name: array if array.dtype == bool else array + 1 for name, array in arrays.items()}
    back = in_form(changed, nested())
    assert back["body"][0]["weight"].dtype is torch.bfloat16
    assert back["body"][0]["weight"].tolist() == [[2.0] * 3] * 2
    assert isinstance(back["head"], tuple)
    assert (back["head"][0], type(back["head"][1]), back["head"][1]) == (2.5, float, 3.0)
    assert back["head"][2].tolist() == [1, 2, 3]
    assert by_name(back).keys() == arrays.keys()


def test_what_comes_back_is_a_copy_and_tensors_of_a_graph_are_taken() -> None:
    module = torch.nn.Linear(2, 2)
    arrays = by_name(dict(module.named_parameters()))
    back = in_form(arrays, module.state_dict())
    back["weight"].zero_()
    assert arrays["weight"].any()
    assert module.weight.any()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (np.ones(2), "a dict or list of arrays"),
        ({}, "at least one array"),
        ({"a": "text"}, "model entry a: 'str'"),
        ({"a": np.ones(1, complex)}, "model entry a: 'complex128'"),
        ({"a": [None]}, r"model entry a\.0"),
        ({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, "one array for each name"),
        ({1.5: np.ones(1)}, "a key that is a text or a whole number"),
        ({"": np.ones(1)}, "a key that is a text or a whole number"),
    ],
)
def test_what_is_no_model_is_an_error_that_names_the_entry(model: object, said: str) -> None:
    with pytest.raises(HanseError, match=said):
        by_name(model)


def test_a_model_within_itself_ends_in_words() -> None:
    endless: list = []
    endless.append(endless)
    with pytest.raises(HanseError, match="nested at most 32 deep"):
        by_name(endless)


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ({"a": np.ones(2), "b": np.ones(1)}, "b is one which only `like` has"),
        ({}, "at least one array"),
        ({"c": np.ones(2)}, "a is one which `like` does not have"),
        ({"a": np.ones(3)}, r"like entry a: \(3,\).*of shape \(2,\)"),
    ],
)
def test_another_form_is_an_error(like: object, said: str) -> None:
    with pytest.raises(HanseError, match=said):
        in_form({"a": np.ones(2)}, like)
