"""What is refused at the edge, and that each refusal says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_coordinator.api.door import HttpLimits
from hanse_fabric.tensors.file import encode_tensors, layout_like
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install

JOB: dict[str, Any] = {"rounds": 2, "model": {"name": "mlp"}, "participants": {"minimum": 2}}
MASKED = JOB | {"participants": {"minimum": 3}, "weighting": "uniform", "secure_aggregation": {"mode": "compensator"}}
PAIRWISE = MASKED | {"secure_aggregation": {"mode": "pairwise", "threshold": 3}}
NARROW = {"mode": "compensator", "bits": 32, "bound": 1e9}
LOUD = {
    "placement": "distributed", "mechanism": "discrete_laplace", "noise": "local-laplace", "noise_multiplier": 1e6,
    "clip": 1e6,
}  # fmt: skip


async def _post(api: Any, path: str, key: str, data: bytes) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key}"}
    async with api.client.post(path, data=data, headers=headers) as response:
        return response.status, (await response.json())["error"]


async def test_a_body_that_is_too_large_is_refused(api: Any, owner: str) -> None:
    status, error = await _post(api, "/v1/projects", owner, b" " * (HttpLimits().body_bytes + 1))
    assert (status, error["code"]) == (413, "too-large")
    assert str(HttpLimits().body_bytes) in error["message"]


@pytest.mark.parametrize("data", [b"", b"{", b'{"rounds": NaN}', b"[" * 100_000])
async def test_a_body_that_is_no_json_is_refused(api: Any, owner: str, data: bytes) -> None:
    status, error = await _post(api, "/v1/projects/alpha/runs", owner, data)
    assert (status, error["code"]) == (400, "invalid-input")
    assert error["message"].startswith(("body: not JSON", "body: nested"))


async def test_a_body_where_none_is_taken_is_refused(api: Any, owner: str) -> None:
    status, error = await _post(api, f"/v1/projects/alpha/runs/{'a' * 12}/pause", owner, b"{}")
    assert (status, error["code"]) == (400, "invalid-input")


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/projects", {"name": "x", "schema": {"kind": "open"}, "colour": 1}, "colour"),
        ("/v1/projects", {"name": "Bad Name", "schema": {"kind": "open"}}, "name"),
        ("/v1/projects", {"name": "x", "schema": {"kind": "cube"}}, "schema"),
        ("/v1/projects", {"name": "hub", "schema": {"kind": "open"}}, "'hub'"),
        ("/v1/projects/alpha/invitations", {"participant": "north", "expires_in": -1}, "expires_in"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"epochs": 3}}, "job.epochs"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"rounds": 0}}, "job.rounds"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"participants": {"quorum": 1.5}}}, "job.participants.quorum"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"strategy": {"reduction": {"name": "mode"}}}}, "strategy"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"model": {"name": "oracle"}}}, "model"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"model": {"name": "linear"}}}, "model.name"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"train": {"loss": "mse"}}}, "train.loss"),
        ("/v1/projects/alpha/check", {"job": JOB | {"train": {"epoch": 1}}}, "epoch"),
        ("/v1/projects/alpha/check", {"job": JOB | {"train": {"algorithm": "lion"}}}, "'lion' is no algorithm that is"),
        ("/v1/projects/alpha/runs", {"job": JOB | {"strategy": {"reduction": {"name": "mode"}}}}, "known are bulyan"),
        ("/v1/projects/alpha/check", {"job": MASKED | {"secure_aggregation": NARROW}}, "secure_aggregation.bound"),
        ("/v1/projects/alpha/runs", {"job": MASKED | {"secure_aggregation": NARROW}}, "a ring of 32 bits"),
        ("/v1/projects/alpha/check", {"job": MASKED | {"privacy": LOUD}}, "with noise up to"),
        ("/v1/projects/alpha/check", {"job": PAIRWISE | {"participants": {"minimum": 6}}}, "more than half of the 6"),
        ("/v1/projects/alpha/check", {"job": PAIRWISE | {"participants": {"minimum": 301}}}, "at most 300"),
    ],
)
async def test_a_bad_field_is_named(api: Any, owner: str, path: str, body: Any, told: str) -> None:
    status, code, message = await api.refused("POST", path, owner, body)
    assert (status, code) == (400, "invalid-input")
    assert told in message


TURNS = {
    "placement": "central", "mechanism": "dp_ftrl", "epsilon": 2.0, "min_separation": 2,
    "matrix": {"name": "banded", "bands": 2},
}  # fmt: skip
NOISY = {"placement": "local", "mechanism": "gaussian", "epsilon": 2.0}
SEVERAL = {"mode": "compensator", "compensators": ["one", "two", "three"], "needed": 4}
HALF = {"minimum": 4, "fraction": 0.5}


def turns(**changes: Any) -> dict[str, Any]:
    return {"weighting": "uniform", "participants": HALF, "privacy": TURNS | changes}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"privacy": NOISY | {"epsilon": 0}}, "privacy.epsilon: Input should be greater than 0 (given 0)"),
        ({"privacy": NOISY | {"delta": 1}}, "privacy.delta: Input should be less than 1 (given 1)"),
        ({"privacy": NOISY | {"site_epsilon": {"a": 0}}}, "privacy.site_epsilon.a: 0: a number above 0"),
        (
            {"participants": {"minimum": 3}, "secure_aggregation": SEVERAL},
            "needed: 4 of 3 compensators; at most all of them are needed",
        ),
        (turns(matrix={"name": "banded", "bands": 3}), "privacy.matrix.bands: 3 is not 1 to the number of rounds, 2"),
        (turns(matrix={"name": "blt", "buffers": 3}), "privacy.matrix.buffers: 3 is not 1 to the number of rounds, 2"),
        (turns(min_separation=3), "privacy.min_separation: 3 is not 1 to the number of rounds, 2"),
        ({"model": {"name": "mlp", "dropout": 1}}, "model: dropout: Input should be less than 1 (given 1)"),
        (
            {"model": {"name": "mlp", "hidden": [6], "normalization": "kernel", "kernel": {"dropout": 1}}},
            "model: kernel.dropout: Input should be less than or equal to 0.999 (given 1)",
        ),
        (
            {"model": {"name": "mlp", "hidden": [6], "normalization": "group", "groups": 4}},
            "groups: 4 does not divide 6, the common divisor of the normalized widths of mlp",
        ),
        (
            {"train": {"schedule": {"name": "cosine", "length": 3}}},
            "train.schedule.length: 3 is not at most 2, for the job has 2 rounds",
        ),
    ],
)
async def test_privacy_and_networks_that_cannot_be_are_refused_before_a_run_begins(
    api: Any, owner: str, change: dict[str, Any], told: str
) -> None:
    status, code, message = await api.refused("POST", "/v1/projects/alpha/check", owner, {"job": JOB | change})
    assert (status, code) == (400, "invalid-input")
    assert told in message


async def test_a_network_is_refused_where_its_kernels_are_larger_than_the_projects_images(api: Any, owner: str) -> None:
    images = {"kind": "array", "shape": [3, 8, 8], "task": "classification", "classes": 4}
    await api.ok("POST", "/v1/projects", owner, {"name": "scans", "schema": images})
    job = JOB | {"model": {"name": "knresnet13", "stem": "large"}}
    status, code, message = await api.refused("POST", "/v1/projects/scans/check", owner, {"job": job})
    assert (status, code) == (400, "invalid-input")
    assert "knresnet13" in message
    assert "images as small as [8, 8]; it takes 31" in message


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/projects/UPPER", "project: lower-case letters, digits and hyphens within, 63 characters at most"),
        ("/v1/projects/alpha/runs/short", "run: 12 lower-case letters and digits (given 'short')"),
        ("/v1/projects/alpha/models/0", "version"),
        ("/v1/projects/alpha/audit?limit=0", "limit"),
        ("/v1/projects/alpha/audit?page=2", "page"),
        ("/v1/projects/alpha/audit?after=1&after=2", "after"),
    ],
)
async def test_a_bad_path_or_query_is_named(api: Any, owner: str, path: str, told: str) -> None:
    status, code, message = await api.refused("GET", path, owner)
    assert (status, code) == (400, "invalid-input")
    assert told in message


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/none",
        "/v1/projects/none/runs",
        "/v1/projects/none/participants",
        "/v1/projects/alpha/participants/none",
        f"/v1/projects/alpha/runs/{'a' * 12}",
        f"/v1/projects/alpha/runs/{'a' * 12}/events",
        f"/v1/projects/alpha/runs/{'a' * 12}/metrics",
        "/v1/projects/alpha/models/7",
        "/v1/nothing",
    ],
)
async def test_the_api_answers_not_found_for_what_is_not_there(api: Any, owner: str, path: str) -> None:
    status, code, message = await api.refused("GET", path, owner)
    assert (status, code) == (404, "not-found")
    assert message


async def test_a_method_that_is_not_there_names_those_that_are(api: Any, owner: str) -> None:
    status, answer = await api.call("PUT", "/v1/projects", owner)
    assert (status, answer["error"]["hint"]) == (404, "there is: GET, POST")


async def test_a_project_is_created_once(api: Any, owner: str) -> None:
    _, code, message = await api.refused("POST", "/v1/projects", owner, {"name": "alpha", "schema": {"kind": "open"}})
    assert code == "conflict"
    assert "'alpha'" in message


async def test_an_initial_model_must_have_been_uploaded(api: Any, owner: str) -> None:
    job = JOB | {"initial_model": "0" * 64}
    status, code, message = await api.refused("POST", "/v1/projects/alpha/runs", owner, {"job": job})
    assert (status, code) == (404, "not-found")
    assert "job.initial_model" in message
    link = await api.ok("POST", "/v1/projects/alpha/objects", owner, announced("0"))
    assert [part["number"] for part in link["parts"]] == [1]
    for data, found in ((b"x", "1 bytes"), (b"\xff" * 40, "header"), (model_file()[:-1], "describes")):
        api.hub.store.put(link["key"], data)
        status, code, message = await api.refused("POST", "/v1/projects/alpha/runs", owner, {"job": job})
        assert (status, code) == (400, "invalid-input")
        assert "job.initial_model" in message
        assert found in message
    api.hub.store.put(link["key"], model_file())
    await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": job})
    checked = await api.ok("POST", "/v1/projects/alpha/check", owner, {"job": job})
    assert any("initial_model: entry" in text for text in checked["warnings"])
    there = await api.ok("POST", "/v1/projects/alpha/objects", owner, announced("0"))
    assert (there["stored"], there["parts"]) == (True, [])
    _, code, _ = await api.refused("POST", "/v1/projects/alpha/objects", owner, announced("0") | {"size": 1})
    assert code == "conflict"


async def test_a_pattern_that_no_entry_of_the_initial_model_fits_is_refused(api: Any, owner: str) -> None:
    link = await api.ok("POST", "/v1/projects/alpha/objects", owner, announced("1"))
    api.hub.store.put(link["key"], model_file())
    state = [{"match": "hiden*", "keep": "frozen"}]
    job = JOB | {"initial_model": "1" * 64, "model": JOB["model"] | {"state": state}}
    status, code, message = await api.refused("POST", "/v1/projects/alpha/runs", owner, {"job": job})
    assert (status, code) == (400, "invalid-input")
    assert "model.state[0].match" in message
    assert "hiden*" in message


def announced(digit: str) -> dict[str, Any]:
    """What begins to upload an object of `model_file`'s size."""
    return {"digest": digit * 64, "size": len(model_file()), "step": {"digests": [digit * 64]}}


def model_file() -> bytes:
    arrays = {"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(3, np.float32)}
    return encode_tensors(layout_like(arrays), arrays)


ODD = """from typing import Literal
from hanse_learning.server.config import ReductionConfig
class Odd(ReductionConfig):
    def least(self):
        return {}["never"]
    def combine(self, updates, weights, out): ...
from pydantic import model_validator
class Checked(ReductionConfig):
    def combine(self, updates, weights, out): ...
    @model_validator(mode="after")
    def _checked(self):
        return {}["never"]
class Named(ReductionConfig):
    name: Literal["named"] = "named"
    def combine(self, updates, weights, out): ...
from hanse_learning.config import AlgorithmConfig
class OddSteps(AlgorithmConfig): ...
from hanse_learning.codecs.config import CodecConfig
class OddCodec(CodecConfig): ...
from hanse_workflows import Workflow
async def odd(run): ...
def check(job):
    # raises
    return {}["never"]
workflow = Workflow(odd, check)
"""


async def test_a_defect_is_told_without_its_details(api: Any, owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(api.hub.presence, "count_online", broken)
    status, code, message = await api.refused("GET", "/v1/status", await api.make_key("operator"))
    assert (status, code) == (500, "internal")
    assert "secret" not in json.dumps(message)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"strategy": {"reduction": {"name": "winsorized_mean", "cut": -1}}}, "reduction.cut: Input should be greater"),
        ({"strategy": {"reduction": {"name": "winsorized_mean", "cut": 2}}}, "mean takes 5 updates at least"),
        ({"strategy": {"reduction": {"name": "broken"}}}, "broken of trial 1.0 cannot be loaded: trial_broken:X "
         "raised ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ({"strategy": {"reduction": {"name": "empty"}}}, "strategy empty: Empty has no combine(updates, weights, out)"),
        ({"strategy": {"reduction": {"name": "other"}}}, "trial:Other is no subclass of ReductionConfig"),
        ({"train": {"algorithm": "broken_steps"}}, "algorithm broken_steps of trial 1.0 cannot be loaded"),
        ({"train": {"algorithm": "odd"}}, "algorithm odd: OddSteps has no train(session)"),
        ({"strategy": {"reduction": {"name": "odd"}}}, "strategy odd of trial 1.0 raised KeyError in line 5 of "),
        ({"strategy": {"reduction": {"name": "checked"}}}, "strategy checked of trial 1.0 raised KeyError in line 12 "),
        ({"strategy": {"reduction": {"name": "renamed"}}}, "trial_odd:Named does not take 'renamed' for its name"),
        ({"codec": {"up": [{"name": "odd"}]}}, "codec odd: role: None is not one of sparsify, factor, quantize"),
        ({"workflow": "odd"}, "workflow odd of trial 1.0 raised KeyError in line 24 of trial_odd.py"),
    ],
)  # fmt: skip
async def test_a_plugin_that_cannot_be_used_is_refused_at_submission_and_says_why(
    api: Any, owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], told: str
) -> None:
    source = (
        "from hanse_learning.server.config import ReductionConfig\nOther = int\nclass Empty(ReductionConfig): pass\n"
    )
    modules = {
        "trial": source,
        "trial_broken": "import nothing_of_the_kind",
        "winsorized": WINSORIZED,
        "trial_odd": ODD,
    }
    offered = {"broken": "trial_broken:X", "empty": "trial:Empty", "other": "trial:Other"}
    odd = {"odd": "trial_odd:Odd", "checked": "trial_odd:Checked", "renamed": "trial_odd:Named"}
    entries = {
        "hanse.strategies": offered | odd | WINSORIZED_ENTRY["hanse.strategies"],
        "hanse.algorithms": {"broken_steps": "trial_broken:X", "odd": "trial_odd:OddSteps"},
        "hanse.codecs": {"odd": "trial_odd:OddCodec"},
        "hanse.workflows": {"odd": "trial_odd:workflow"},
    }
    monkeypatch.syspath_prepend(install(tmp_path, "trial", modules, entries))
    status, code, message = await api.refused("POST", "/v1/projects/alpha/runs", owner, {"job": JOB | job})
    assert (status, code) == (400, "invalid-input")
    assert told in message
