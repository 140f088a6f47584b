"""`model.state` of models that site code makes: local entries stay, frozen ones stand still, the rest is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import layout_of, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from unit.datapod_worker.site_rounds import Site

CODE = """
import numpy as np


def initialize(config):
    head = np.random.default_rng(config["seed"]).normal(size=3).astype(np.float32)
    return {"body.weight": np.zeros(4, np.float32), "body.steps": np.zeros(1, np.int64), "head.weight": head}


def train(model, data, config):
    moved = {name: array + np.ones((), array.dtype) for name, array in model.items()}
    return moved | {name: model[name] for name in config["frozen"]}, len(data.x), {}


def test(model, data, config):
    return len(data.x), {"head": float(model["head.weight"][0])}
"""
CARELESS = CODE.replace('config["frozen"]', "()")
WITHOUT_INITIALIZE = CODE.replace("def initialize", "def _initialize")
NO_STEPS = CODE.replace('"body.steps": np.zeros(1, np.int64), ', "")
HEAD_LOCAL = [{"match": "head.*", "keep": "local"}]


def own(rules: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    return {"name": "own", "state": rules} | others


def names(path: Path) -> set[str]:
    return {entry.name for entry in layout_of(path)}


def bytes_of_head(site: Site, number: int) -> bytes:
    head = site.kept(number)["local/head.weight"]
    assert head.any()
    return head.tobytes()


def test_local_entries_are_in_no_file_that_leaves_and_go_on_at_the_site(tmp_path: Path) -> None:
    site = Site(tmp_path, code=CODE, model=own(HEAD_LOCAL)).begin()
    assert names(tmp_path / "model") == {"body.weight", "body.steps"}
    begun = site.evaluate(1, trained=0).metrics["head"]
    site.train(1, trained=0)
    assert names(tmp_path / "update") == {"body.weight", "body.steps"}
    assert bytes_of_head(site, 1) not in site.sent
    site.count()
    after = site.evaluate(1, trained=1).metrics["head"]
    site.train(2, trained=1)
    assert after != begun
    assert site.kept(2)["local/head.weight"][0] == pytest.approx(after + 1)


def test_without_rules_the_same_search_finds_the_entry(tmp_path: Path) -> None:
    site = Site(tmp_path, code=CODE, model=own([])).begin()
    assert b"head.weight" in (tmp_path / "model").read_bytes()
    site.train(1)
    assert site.update["head.weight"].tobytes() in site.sent


def test_a_round_done_again_gives_the_same_bits_and_leaves_the_same_state(tmp_path: Path) -> None:
    site = Site(tmp_path, code=CODE, model=own(HEAD_LOCAL)).begin()
    found = []
    for _ in range(2):
        site.train(1, trained=0)
        found.append((site.sent, bytes_of_head(site, 1)))
    assert found[0] == found[1]


def test_the_generators_are_seeded_again_after_the_local_entries_were_made(tmp_path: Path) -> None:
    """A site that makes its local entries first then draws the same numbers as a site that has none."""
    drawing = CODE.replace(
        "def train", "def draws(array):\n    return np.random.uniform(size=array.shape)\n\n\ndef train"
    )
    drawing = drawing.replace("head = ", "np.random.uniform(); head = ")
    drawing = drawing.replace("array + np.ones((), array.dtype)", "(array + draws(array)).astype(array.dtype)")
    updates = []
    for rules in (HEAD_LOCAL, []):
        site = Site(tmp_path / str(len(rules)), code=drawing, model=own(rules)).begin()
        site.train(1, trained=0)
        updates.append(site.update["body.weight"].copy())
    np.testing.assert_array_equal(*updates)


def test_lost_local_entries_begin_anew_with_a_note(tmp_path: Path) -> None:
    site = Site(tmp_path, code=CODE, model=own(HEAD_LOCAL)).begin()
    site.train(1, trained=0)
    site.count()
    shutil.rmtree(tmp_path / "state")
    assert "lost" in site.train(2, trained=1).note


@pytest.mark.parametrize("frozen", ["body.weight", "body.steps"])
def test_frozen_entries_travel_and_do_not_change(tmp_path: Path, frozen: str) -> None:
    rules = [{"match": frozen, "keep": "frozen", "from_round": 2}]
    site = Site(tmp_path, code=CODE, model=own(rules)).begin()
    site.train(1, trained=0)
    site.count()
    site.train(2, trained=1)
    assert site.update[frozen][0] == {"body.weight": 0, "body.steps": 1}[frozen]
    assert site.update["head.weight"].all()


@pytest.mark.parametrize("frozen", ["body.weight", "body.steps"])
def test_site_code_that_moves_a_frozen_entry_is_refused(tmp_path: Path, frozen: str) -> None:
    site = Site(tmp_path, code=CARELESS, model=own([{"match": frozen, "keep": "frozen"}])).begin()
    with pytest.raises(HanseError, match=rf"entry {frozen} has changed, and model\.state keeps it frozen") as caught:
        site.train(1, trained=0)
    assert caught.value.code is ErrorCode.TRAINING_FAILED
    assert not (tmp_path / "update").exists()


def test_site_code_that_moves_a_frozen_entry_of_a_built_in_model_is_refused(tmp_path: Path) -> None:
    text = "def train(model, data, config):\n    model.output.bias.data += 1\n    return model, len(data.x), {}\n"
    model = {"name": "logistic", "state": [{"match": "output.bias", "keep": "frozen"}]}
    site = Site(tmp_path, code=text, model=model).begin()
    with pytest.raises(HanseError, match=r"entry output\.bias has changed"):
        site.train(1, trained=0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (own([{"match": "hed.*", "keep": "local"}]), r"model\.state\[0\]: 'hed\.\*'"),
        (own([*HEAD_LOCAL, {"match": "tail", "keep": "frozen"}]), r"model\.state\[1\]: 'tail'"),
        (own([{"layers": "output", "keep": "local"}]), r"model\.state\[0\]\.layers: 'output'.*match"),
        (own([{"match": "*", "keep": "lokal"}]), r"model\.state: 0\.keep: .*'lokal'"),
        (own([]) | {"state": "head.*"}, r"model\.state: .*'head\.\*'"),
        (own([{"match": "*.weight", "keep": "frozen"}]), "leave a parameter to train"),
        (own([{"match": "*.weight", "keep": "frozen", "from_round": 3}]), "all frozen from round 3 on"),
        (own([], buffers={"head.*": "keep_local"}), r"model\.buffers: .*model\.state"),
    ],
)
def test_rules_that_cannot_hold_are_refused_before_the_first_round(
    tmp_path: Path, model: dict[str, Any], said: str
) -> None:
    with pytest.raises(HanseError, match=said) as caught:
        Site(tmp_path, code=CODE, model=model).begin()
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert not (tmp_path / "model").exists()


def given(site: Site, *entries: str) -> None:
    """Have the site receive a model that its owner has uploaded."""
    arrays = {name: np.zeros(4 if name == "body.weight" else 3, np.float32) for name in entries}
    write_tensors(site.folder / "model", Layout.of(Entry(name, "F32", arrays[name].shape) for name in entries), arrays)


@pytest.mark.parametrize(
    ("entries", "code", "said"),
    [
        (("body.weight", "head.weight"), CODE, "model file: an entry that this site's code makes is missing"),
        (
            ("body.weight", "head.weight"),
            CODE.replace('"body.steps"', '"head.steps"'),
            "entry head.weight is not in it",
        ),
        (("body.weight",), WITHOUT_INITIALIZE, "it has no function initialize, which makes the entries that stay"),
        (
            ("body.weight",),
            NO_STEPS.replace("np.zeros(4,", "np.zeros(5,"),
            r"is float32\[4\], so it is not the model",
        ),
    ],
)
def test_an_uploaded_model_that_does_not_go_with_the_local_entries_is_refused(
    tmp_path: Path, entries: tuple[str, ...], code: str, said: str
) -> None:
    site = Site(tmp_path, code=code, model=own(HEAD_LOCAL))
    given(site, *entries)
    for work in (site.train, site.evaluate):
        with pytest.raises(HanseError, match=said) as caught:
            work(1, trained=0)
        assert caught.value.code is ErrorCode.INVALID_INPUT
    assert not (tmp_path / "update").exists()


def test_an_uploaded_model_without_the_local_entries_is_completed_by_the_site(tmp_path: Path) -> None:
    site = Site(tmp_path, code=NO_STEPS, model=own(HEAD_LOCAL))
    given(site, "body.weight")
    site.train(1, trained=0)
    assert site.update.keys() == {"body.weight"}


def test_site_code_that_leaves_a_local_entry_out_is_refused(tmp_path: Path) -> None:
    text = CODE.replace('for name in config["frozen"]}, len', "for name in ()}, len").replace(
        "    return moved |", "    del moved['head.weight']\n    return moved |"
    )
    site = Site(tmp_path, code=text, model=own(HEAD_LOCAL)).begin()
    with pytest.raises(HanseError, match=r"entry head\.weight is missing"):
        site.train(1, trained=0)
