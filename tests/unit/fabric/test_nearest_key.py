"""A key that nobody knows is refused with the one that was probably meant, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from hanse_datapod.policy.site_policy import load_policy
from hanse_fabric.errors import HanseError
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.places import place_of
from hanse_learning.codecs.config import check_chain
from hanse_learning.config import check_model, check_train
from hanse_learning.server.config import check_strategy
from hanse_schemas.job import check_job
from hanse_schemas.prepare import Prepare, completed, rules_of
from hanse_schemas.schema import TabularSchema

BODY = {"rounds": 3, "model": {"name": "mlp"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"roundz": 3}, "roundz: Extra inputs are not permitted, did you mean rounds? (given 3)"),
        (
            {"participants": {"minimun": 3}},
            "minimun: Extra inputs are not permitted, did you mean minimum?",
        ),
        ({"secure_aggregation": {"mod": "pairwise"}}, "mod: Extra inputs are not permitted, did you mean mode?"),
        ({"privacy": {"epsilo": 1.0}}, "did you mean epsilon?"),
        ({"zzz": 1}, "zzz: Extra inputs are not permitted (given 1)"),
    ],
)
def test_a_job_s_typo_names_the_nearest_key(given: dict[str, object], said: str) -> None:
    with pytest.raises(HanseError) as caught:
        check_job(BODY | given)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_a_typo_of_what_every_job_must_say_is_told_as_one() -> None:
    with pytest.raises(HanseError) as caught:
        check_job({"roundz": 10, "participants": {"minimum": 3}, "model": {"name": "mlp"}})
    assert caught.value.message == "job file: roundz: Extra inputs are not permitted, did you mean rounds? (given 10)"
    with pytest.raises(HanseError) as caught:
        check_job({"participants": {"minimum": 3}, "model": {"name": "mlp"}})
    assert caught.value.message == "job file: rounds: none are given, 1 or more rounds of training are needed"
    # Whatever else is wrong, it comes first.
    with pytest.raises(HanseError, match=r"^job file: roundz: .*, did you mean rounds\?.*; participants: "):
        check_job({"roundz": 1, "participants": 2, "model": 3, "train": 4, "seed": "x", "tags": 5, "codec": 6})


def test_what_the_whole_job_says_wrong_is_told_in_the_words_of_its_check() -> None:
    with pytest.raises(HanseError) as caught:
        check_job(BODY | {"keep": "best"})
    assert caught.value.message.startswith("job file: keep: best is given without a section stop")
    assert "given {" not in caught.value.message


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (lambda: check_train({"optimizer": {"name": "sgdd"}}), "sgd"),
        (lambda: check_train({"algorithm": {"name": "fedprx"}}), "fedprox"),
        (lambda: check_train({"loss": "cros_entropy"}), "cross_entropy"),
        (lambda: check_train({"schedule": {"name": "cosin"}}), "cosine"),
        (lambda: check_strategy({"reduction": {"name": "medain"}}), "median"),
        (lambda: check_model({"name": "mpl"}), "mlp"),
        (lambda: check_chain([{"name": "zstdd"}]), "zstd"),
        (lambda: check_job(BODY | {"secure_aggregation": {"mode": "pairwse"}}), "pairwise"),
        (lambda: check_job(BODY | {"code": {"kind": "flowr"}}), "flower"),
    ],
)
def test_a_typo_in_a_choice_names_the_nearest_one(given: Callable[[], object], meant: str) -> None:
    with pytest.raises(HanseError, match=rf", did you mean {meant}\?") as caught:
        given()
    assert not any(word in caught.value.message for word in ("message:", "()", "Input tag"))


def test_sections_that_are_checked_apart_name_it_too(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"did you mean batch_size\?"):
        check_train({"batchsize": 32})
    with pytest.raises(HanseError, match=r"did you mean lr\?"):
        check_train({"optimizer": {"name": "sgd", "lrr": 0.1}})
    with pytest.raises(HanseError, match=r"did you mean reduction\?"):
        check_strategy({"reductions": {"name": "median"}})
    (tmp_path / "policy.yaml").write_text("masking: {require: true}\n")
    with pytest.raises(HanseError, match=r"did you mean required\?"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"name": "mlp", "hiden": [8]}, "hidden"),
        ({"name": "cnn", "chanels": [8]}, "channels"),
        # The nearest of the model that is named; `stem` is another's.
        ({"name": "resnet8", "state": [{"match": "*", "kept": "local"}]}, "keep"),
        ({"name": "knresnet18", "kernel": {"drop_out": 0.1}}, "dropout"),
    ],
)
def test_a_model_s_typo_names_the_nearest_key_of_that_model(given: dict[str, object], meant: str) -> None:
    with pytest.raises(HanseError, match=rf"did you mean {meant}\?"):
        check_model(given)


def test_a_key_of_another_model_is_not_offered() -> None:
    with pytest.raises(HanseError, match="stems") as caught:
        check_model({"name": "logistic", "stems": "small"})
    assert "stem?" not in caught.value.message
    with pytest.raises(HanseError, match=r"did you mean stem\?"):
        check_model({"name": "resnet8", "stems": "small"})


@pytest.mark.parametrize(
    ("section", "meant"),
    [({"name": "top_k", "fractoin": 0.1}, "fraction"), ({"name": "zstd", "levels": 3}, "level")],
)
def test_a_codec_s_typo_names_the_nearest_key_of_that_codec(section: dict[str, object], meant: str) -> None:
    with pytest.raises(HanseError, match=rf"did you mean {meant}\?") as caught:
        check_chain([section])
    assert caught.value.message.count("did you mean") == 1
    with pytest.raises(HanseError) as control:
        check_chain([{**section, next(key for key in section if key != "name"): 0, "zzz": 1}])
    assert "zzz: Extra inputs are not permitted (given 1)" in control.value.message


def test_plug_ins_of_training_and_strategy_name_it_by_their_own_forms() -> None:
    with pytest.raises(HanseError, match=r"mus: Extra inputs are not permitted, did you mean mu\? \(given 1\)"):
        check_train({"algorithm": {"name": "fedprox", "mus": 1}})
    with pytest.raises(HanseError, match=r"did you mean fraction\?"):
        check_strategy({"reduction": {"name": "trimmed_mean", "fractions": 0.1}})
    with pytest.raises(HanseError, match=r"beta1: Input should be less than 1"):
        check_strategy({"optimizer": {"name": "adam", "beta1": 2}})


SCHEMA = TabularSchema.model_validate({
    "features": [{"name": "age"}, {"name": "sex", "kind": "category", "values": ["f", "m"]}],
    "target": "ill", "classes": 2,
})  # fmt: skip


def test_a_preparation_s_typo_names_the_nearest_setting() -> None:
    with pytest.raises(HanseError, match=r"scal is no setting; there are .*, did you mean scale\?"):
        check_job(BODY | {"prepare": {"numbers": {"scal": "robust"}}})
    with pytest.raises(HanseError, match=r"columns: age: mising is no setting; .*did you mean missing\?"):
        check_job(BODY | {"prepare": {"columns": [{"name": "age", "mising": "mean"}]}})
    with pytest.raises(HanseError, match=r"unknwon: .*did you mean unknown\?"):
        rules_of([{"name": "sex", "kind": "category", "values": ["f", "m"], "unknwon": "zeros"}])
    # What belongs to numbers alone is no key of a category, whatever is near to it among them.
    with pytest.raises(HanseError, match=r"scale: Extra inputs are not permitted") as caught:
        completed(Prepare(columns=({"name": "sex", "scale": "robust"},)), SCHEMA)
    assert "did you mean scale?" not in caught.value.message


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"name": "focal", "gamma": "x"}, "train: loss.gamma: Input should be a valid number, unable to parse"),
        ({"nam": "focal"}, "train: loss: name is needed, which says what it is (given {'nam': 'focal'})"),
        ({"name": "fokal"}, "train: loss: name: one of 'focal', 'cross_entropy', 'binary', 'huber' is needed, did "),
        ("fokal", "train: loss: Input should be 'cross_entropy', 'binary' or 'mse', or a section is needed, as {key: "),
    ],
)  # fmt: skip
def test_where_a_word_or_a_section_may_stand_a_wrong_section_is_not_called_a_wrong_word(loss: Any, said: str) -> None:
    with pytest.raises(HanseError) as caught:
        check_train({"loss": loss})
    assert caught.value.message.startswith(said)
    assert ("Input should be 'cross_entropy'" in caught.value.message) == (loss == "fokal")


class Whole(BaseModel):
    either: Literal["a"] | Literal["b"] = "a"
    numbers: tuple[int, ...] = ()


def test_a_section_where_only_words_may_stand_is_told_to_be_none_of_them() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({"either": {}})
    assert explain(caught.value, Whole) == "either: Input should be 'a', or Input should be 'b' (given {})"


def test_a_mistake_is_explained_as_soon_where_a_body_has_a_great_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub explains what anybody sends: of what is not told nothing is looked for."""
    asked = 0

    def counted(form: object, told: Iterable[int | str]) -> tuple[int | str, ...]:
        nonlocal asked
        asked += 1
        return place_of(form, told)

    monkeypatch.setattr("hanse_fabric.messages.explained.place_of", counted)
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({"numbers": ["q"] * 300})
    assert explain(caught.value, Whole).startswith("numbers.0: Input should be a valid integer")
    assert asked == 5  # as many as are told
