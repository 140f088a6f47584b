"""What stays at a site between rounds: right after crashes, late answers and losses; what leaves beside the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.worker.port import extra_output
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import layout_of, read_tensors
from hanse_learning.site.examples import Examples
from hanse_schemas.schema import ArraySchema, DataSchema, OpenSchema
from unit.datapod_worker.site_rounds import MLP, Site, examples

NORMED = {**MLP, "batch_norm": True}
STEPS: dict[str, Any] = {"epochs": 1, "batch_size": 8}
STATEFUL: dict[str, dict[str, Any]] = {
    "scaffold": {"train": STEPS | {"algorithm": "scaffold"}},
    "feddyn": {"train": STEPS | {"algorithm": "feddyn"}},
    "moon": {"train": STEPS | {"algorithm": "moon"}},
    "ditto": {"train": STEPS | {"algorithm": "ditto"}},
    "lotteryfl": {"train": STEPS | {"algorithm": {"name": "lotteryfl", "threshold": 0}}},
    "fedrep": {"train": STEPS | {"algorithm": "fedrep"}},
    "momentum": {"train": STEPS | {"optimizer": {"momentum": 0.9, "across_rounds": True}}},
    "adam": {"train": STEPS | {"optimizer": {"name": "adam", "across_rounds": True}}},
    "fedbn": {"train": STEPS, "model": NORMED | {"state": [{"layers": "batch_norm", "keep": "local"}]}},
    "silobn": {"train": STEPS, "model": NORMED | {"state": [{"layers": "statistics", "keep": "local"}]}},
    "fedper": {"train": STEPS, "model": MLP | {"state": [{"match": "output.*", "keep": "local"}]}},
    "single": {"train": STEPS, "model": MLP | {"state": [{"match": "*", "keep": "local"}]}},
}
REFUSE = ("scaffold", "feddyn")


@pytest.mark.parametrize("name", STATEFUL)
def test_a_round_done_again_after_a_crash_gives_the_same_bits_and_leaves_the_same_state(
    tmp_path: Path, name: str
) -> None:
    site = Site(tmp_path, **STATEFUL[name]).begin()
    site.train(1, trained=0)
    site.count()
    site.train(2, trained=1)
    first, kept = site.sent, (tmp_path / "state" / "local-2.safetensors").read_bytes()
    site.train(2, trained=1)
    assert site.sent == first
    assert (tmp_path / "state" / "local-2.safetensors").read_bytes() == kept
    assert site.rounds == ["local-1.safetensors", "local-2.safetensors"]


@pytest.mark.parametrize("name", STATEFUL)
def test_a_round_that_did_not_count_is_as_if_it_had_not_been(tmp_path: Path, name: str) -> None:
    sent = []
    for late in (True, False):
        site = Site(tmp_path / str(late), **STATEFUL[name]).begin()
        site.train(1, trained=0)
        site.count()
        if late:
            site.train(2, trained=1)
        site.train(3, trained=1)
        assert site.rounds == ["local-1.safetensors", "local-3.safetensors"]
        sent.append(site.sent)
    assert sent[0] == sent[1]


@pytest.mark.parametrize("name", STATEFUL)
def test_a_round_from_another_state_leaves_other_bits(tmp_path: Path, name: str) -> None:
    """The control for the tests above: with other state the same round gives other bits."""
    sent = []
    for trained in (1, 0):
        site = Site(tmp_path / str(trained), **STATEFUL[name]).begin()
        site.train(1, trained=0)
        site.count()
        site.train(2, trained=trained)
        kept = (tmp_path / str(trained) / "state" / "local-2.safetensors").read_bytes()
        sent.append((site.sent, kept))
    assert sent[0][1] != sent[1][1]


@pytest.mark.parametrize("name", STATEFUL)
def test_lost_state_is_refused_where_the_server_counts_on_it_and_begins_anew_with_a_note_elsewhere(
    tmp_path: Path, name: str
) -> None:
    site = Site(tmp_path, **STATEFUL[name]).begin()
    site.train(1, trained=0)
    site.count()
    shutil.rmtree(tmp_path / "state")
    if name in REFUSE:
        with pytest.raises(HanseError, match="is not there any more") as caught:
            site.train(2, trained=1)
        assert caught.value.code is ErrorCode.CONFLICT
    else:
        assert "lost" in site.train(2, trained=1).note
        assert site.rounds == ["local-2.safetensors"]


def test_state_of_an_old_backup_is_lost_state(tmp_path: Path) -> None:
    site = Site(tmp_path, **STATEFUL["scaffold"]).begin()
    site.train(1, trained=0)
    site.count()
    with pytest.raises(HanseError, match="control variate"):
        site.train(6, trained=5)


def test_a_site_that_joins_late_begins_without_state(tmp_path: Path) -> None:
    assert Site(tmp_path, **STATEFUL["scaffold"]).begin().train(7, trained=0).note == ""


def test_a_site_takes_its_newest_earlier_round_when_the_hub_names_none(tmp_path: Path) -> None:
    told, untold = (Site(tmp_path / name, **STATEFUL["fedper"]).begin() for name in ("told", "untold"))
    for site, trained in ((told, (0, 1)), (untold, (None, None))):
        site.train(1, trained=trained[0])
        site.count()
        site.train(2, trained=trained[1])
    assert told.sent == untold.sent


def test_a_model_that_changed_between_rounds_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, **STATEFUL["ditto"]).begin()
    site.train(1, trained=0)
    site.config = site.config | {"model": MLP | {"hidden": [7]}}
    with pytest.raises(HanseError, match=r"model file: entry \S+ is float32"):
        site.train(2, trained=1)
    site.do(TaskKind.INITIALIZE, 0, output="model")
    with pytest.raises(HanseError, match=r"what this site keeps \(personal\).*the model has changed"):
        site.train(2, trained=1)


def test_local_entries_stay_and_are_evaluated_with(tmp_path: Path) -> None:
    site = Site(tmp_path, **STATEFUL["fedper"] | {"train": {"epochs": 60, "batch_size": 8}}).begin()
    assert {entry.name for entry in layout_of(tmp_path / "model")} == {"hidden0.weight", "hidden0.bias"}
    before = site.evaluate(1, trained=0).metrics["accuracy"]
    site.train(1, trained=0)
    assert site.update.keys() == {"hidden0.weight", "hidden0.bias"}
    site.count()
    assert site.evaluate(1, trained=1).metrics["accuracy"] > max(0.7, before)


def test_frozen_entries_travel_and_do_not_change(tmp_path: Path) -> None:
    rules = [{"layers": "statistics", "keep": "frozen", "from_round": 2}, {"match": "hidden0.bias", "keep": "frozen"}]
    site = Site(tmp_path, model=NORMED | {"state": rules}, train=STEPS).begin()
    site.train(1, trained=0)
    assert not site.update["hidden0.bias"].any()
    assert site.update["hidden0.weight"].any()
    site.count()
    model = {name: array.copy() for name, array in read_tensors(tmp_path / "model")[1].items()}
    assert model["norm0.running_mean"].any()
    site.train(2, trained=1)
    for name in ("norm0.running_mean", "norm0.running_var", "norm0.num_batches_tracked"):
        assert site.update[name].tobytes() == model[name].tobytes()
    assert site.update["norm0.weight"].any()


def test_frozen_statistics_are_used_in_training(tmp_path: Path) -> None:
    """With statistics of each batch, one example has none; with frozen ones it can be trained on."""
    rules = [{"layers": "statistics", "keep": "frozen"}]
    config: dict[str, Any] = {"model": NORMED | {"state": rules}, "train": {"steps": 1, "batch_size": 1}}
    assert Site(tmp_path, **config).begin().train(1).metrics["steps"] == 1
    with pytest.raises(HanseError, match=r"train\.batch_size: 1"):
        Site(tmp_path, **config | {"model": NORMED}).begin().train(1)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (MLP | {"state": [{"match": "hidden9.*", "keep": "local"}]}, "hidden9"),
        (MLP | {"state": [{"match": "*.*", "keep": "frozen"}]}, "leave a parameter to train"),
        (
            MLP
            | {
                "state": [
                    {"match": "hidden*", "keep": "frozen"},
                    {"match": "out*", "keep": "frozen", "from_round": 7},
                ]
            },
            "all frozen from round 7 on",
        ),
    ],
)
def test_rules_that_fit_nothing_or_leave_nothing_are_refused_before_the_first_round(
    tmp_path: Path, model: dict[str, Any], said: str
) -> None:
    with pytest.raises(HanseError, match=said):
        Site(tmp_path, model=model, train=STEPS).begin()


def test_extras_are_in_the_models_layout_with_zeros_for_buffers(tmp_path: Path) -> None:
    site = Site(tmp_path, model=NORMED, train=STEPS | {"algorithm": "scaffold"}).begin()
    done = site.train(1, trained=0)
    assert [*done.extras] == ["control"]
    extra = extra_output(tmp_path / "update", "control")
    assert layout_of(extra) == layout_of(tmp_path / "model")
    control = read_tensors(extra)[1]
    assert control["hidden0.weight"].any()
    assert not control["norm0.running_mean"].any()


def test_extras_beside_a_private_update_are_refused(tmp_path: Path) -> None:
    privacy = {"mechanism": "gaussian", "clip": 1.0, "scale": 1.0}
    site = Site(tmp_path, privacy=privacy, **STATEFUL["scaffold"]).begin()
    with pytest.raises(HanseError, match="nothing beside the update"):
        site.train(1, trained=0)


def test_the_first_loss_is_told_to_the_strategy_unless_the_work_is_private(tmp_path: Path) -> None:
    site = Site(tmp_path, train=STEPS, info=["first_loss", "normalizer"]).begin()
    expected = site.evaluate(1, trained=0).metrics["loss"]
    assert site.train(1, trained=0).info == {"steps": 5.0, "normalizer": 5.0, "first_loss": pytest.approx(expected)}
    site.config["privacy"] = {"mechanism": "gaussian", "clip": 1.0, "scale": 1.0}
    assert site.train(1, trained=0).info == {"steps": 5.0, "normalizer": 5.0}


@pytest.mark.parametrize("schema", [ArraySchema(shape=(5,), classes=2), OpenSchema()])
def test_binary_loss_is_cross_entropy_of_one_logit(tmp_path: Path, schema: DataSchema) -> None:
    data = examples()
    two = Examples(data.x, (data.y > 0).astype(np.int64))
    site = Site(tmp_path, schema=schema, data=two, train={"epochs": 60, "batch_size": 8, "loss": "binary"}).begin()
    site.train(1, trained=0)
    assert site.update["output.weight"].shape == (1, 6)
    site.count()
    assert site.evaluate(1, trained=1).metrics["accuracy"] > 0.7


def test_focal_loss_without_gamma_is_cross_entropy_and_with_it_is_not(tmp_path: Path) -> None:
    updates = []
    for loss in ("cross_entropy", {"name": "focal", "gamma": 0.0}, {"name": "focal"}):
        site = Site(tmp_path, model=MLP | {"dtype": "float64"}, train=STEPS | {"loss": loss}).begin()
        site.train(1, trained=0)
        updates.append(site.update["output.weight"].copy())
    np.testing.assert_allclose(updates[0], updates[1], atol=1e-14)
    assert updates[0].dtype == np.float64
    assert np.abs(updates[0] - updates[2]).max() > 1e-4


def test_the_rate_falls_by_rounds_and_by_steps(tmp_path: Path) -> None:
    def change(number: int, **schedule: Any) -> np.ndarray:
        train: dict[str, Any] = {"steps": 1, "batch_size": "all"} | ({"schedule": schedule} if schedule else {})
        site = Site(tmp_path, model=MLP | {"dtype": "float64"}, train=train).begin()
        site.train(number, trained=0)
        return site.update["output.bias"].copy()

    whole = change(5)
    np.testing.assert_allclose(change(5, factor=0.5, every_rounds=2), whole / 4, rtol=1e-12)
    np.testing.assert_allclose(change(4, factor=0.5, every_rounds=4), whole, rtol=1e-12)
    np.testing.assert_allclose(change(9, factor=0.5, every_steps=1), whole, rtol=1e-12)
