"""Studies over HTTP: what is refused before they begin, and what of them may be downloaded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages import ObjectRef, StudyOutput
from hanse_fabric.tensors.refs import ref_of_bytes

GENOTYPES = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": ["AGE"]}
STUDY = {"workflow": "association_study", "study": {"test": "linear", "covariates": ["AGE"]}}
BASE = "/v1/projects/gwas"


@pytest.fixture
async def project(api: Any, operator: str) -> str:
    await api.ok("POST", "/v1/projects", operator, {"name": "gwas", "schema": GENOTYPES})
    return operator


async def refused(api: Any, key: str, job: dict[str, Any], path: str = f"{BASE}/check") -> str:
    async with api.client.post(path, json={"job": job}, headers={"Authorization": f"Bearer {key}"}) as response:
        body = await response.json()
        assert response.status == 422 or body["error"]["code"] == "invalid-input", body
        return str(body["error"]["message"])


async def test_a_study_is_masked_by_a_compensator_unless_it_says_otherwise(api: Any, project: str) -> None:
    run = await api.ok("POST", f"{BASE}/runs", project, {"job": STUDY})
    assert run["job"]["secure_aggregation"]["mode"] == "compensator"
    assert (run["job"]["participants"]["minimum"], run["rounds"], run["outputs"]) == (3, 0, [])
    assert "no single cohort's" in run["privacy"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rounds": 3}, "rounds: 3 belongs to training"),
        ({"model": {"name": "mlp"}}, "belongs to training"),
        ({"study": None}, "study: none is given"),
        ({"participants": {"quorum": 0.5}}, "participants.quorum: 0.5 is given, but all cohorts"),
        ({"participants": {"minimum": 2}}, "participants.minimum: 2"),
        ({"secure_aggregation": None}, "secure_aggregation: none"),
        ({"secure_aggregation": {"mode": "compensator", "bits": 32}}, "secure_aggregation.bits: 32"),
        ({"privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 1.0}}, "privacy.mechanism"),
        ({"study": {"test": "linear", "covariates": ["BMI"]}}, "study.covariates"),
        ({"study": {"test": "linear", "phenotype": "HEIGHT"}}, "study.phenotype"),
        ({"study": {"test": "trend", "covariates": ["AGE"]}}, "has none, linear or logistic does"),
        ({"workflow": "federated_averaging", "rounds": 2, "model": {"name": "mlp"}}, "study: it belongs to workflow"),
    ],
)
async def test_impossible_studies_are_refused_by_field(
    api: Any, project: str, change: dict[str, Any], told: str
) -> None:
    assert told in await refused(api, project, STUDY | change)


async def test_two_cohorts_are_enough_where_their_owners_know(api: Any, project: str) -> None:
    study = {"test": "trend", "few_cohorts": True}
    job = STUDY | {"study": study, "participants": {"minimum": 2}}
    await api.ok("POST", f"{BASE}/runs", project, {"job": job})
    audit = await api.ok("GET", f"{BASE}/audit", project)
    (submitted,) = [event for event in audit["events"] if event["action"] == "run.submit"]
    assert submitted["detail"]["few_cohorts"] is True


async def test_two_cohorts_mask_each_other_pairwise_and_one_has_nobody_to_do_it_with(api: Any, project: str) -> None:
    job = STUDY | {"study": {"test": "trend", "few_cohorts": True}, "secure_aggregation": {"mode": "pairwise"}}
    await api.ok("POST", f"{BASE}/check", project, {"job": job | {"participants": {"minimum": 2}}})
    headers = {"Authorization": f"Bearer {project}"}
    alone = {"job": job | {"participants": {"minimum": 1}}}
    async with api.client.post(f"{BASE}/check", json=alone, headers=headers) as response:
        assert "1 participants, at least 2 are needed" in (await response.json())["error"]["message"]


async def test_a_study_needs_a_project_of_genotypes(api: Any, operator: str) -> None:
    schema = {"kind": "array", "shape": [4], "classes": 2}
    await api.ok("POST", "/v1/projects", operator, {"name": "other", "schema": schema})
    assert "genotypes, or open" in await refused(api, operator, STUDY, "/v1/projects/other/check")


def rests(api: Any, run: str) -> ObjectRef:
    """An output of three bytes in the hub's store."""
    ref = ref_of_bytes(b"abc", key=f"models/gwas/{run}/outputs/results")
    api.hub.store.put(ref.key, b"abc")
    return ref


@pytest.mark.usefixtures("registry")
async def test_an_output_is_downloaded_by_a_link_signed_by_the_registry_and_that_is_audited(
    api: Any, project: str
) -> None:
    run = (await api.ok("POST", f"{BASE}/runs", project, {"job": STUDY}))["run"]
    ref = rests(api, run)
    changed = {"outputs": {"results": ref.model_dump(mode="json")}, "cohorts": ("north", "south")}
    await api.hub.buckets.runs.change(lambda record: record.model_copy(update=changed), project="gwas", run=run)
    found = await api.ok("GET", f"{BASE}/runs/{run}/outputs/results", project)
    assert found["url"]
    assert found["output"] == {"name": "results", "digest": ref.digest, "leaves": list(ref.leaves), "size": 3}
    signed = StudyOutput.decode(json.dumps(found["signed"]).encode())
    assert (signed.run, signed.digest, signed.cohorts) == (run, ref.digest, ("north", "south"))
    assert VerifyKey(signed.public_key).is_valid(signed.signature, signed.statement())
    audit = await api.ok("GET", f"{BASE}/audit", project)
    assert [event["action"] for event in audit["events"][-2:]] == ["output.sign", "output.download"]
    assert (await api.ok("GET", f"{BASE}/runs/{run}", project))["outputs"] == ["results"]


async def test_an_output_that_is_not_there_is_not_found(api: Any, project: str) -> None:
    run = (await api.ok("POST", f"{BASE}/runs", project, {"job": STUDY}))["run"]
    assert (await api.ok("GET", f"{BASE}/runs/{run}/outputs", project))["outputs"] == []
    headers = {"Authorization": f"Bearer {project}"}
    async with api.client.get(f"{BASE}/runs/{run}/outputs/results", headers=headers) as response:
        assert response.status == 404


@pytest.mark.usefixtures("registry")
async def test_outputs_are_for_the_cohorts_of_the_study_and_no_other_site(api: Any, project: str) -> None:
    """What a study tells of its people is no matter of a site that was not in it. The control is a study of before."""

    async def recorded(cohorts: tuple[str, ...] | None) -> str:
        run: str = (await api.ok("POST", f"{BASE}/runs", project, {"job": STUDY}))["run"]
        changed = {"outputs": {"results": rests(api, run).model_dump(mode="json")}, "cohorts": cohorts}
        await api.hub.buckets.runs.change(lambda record: record.model_copy(update=changed), project="gwas", run=run)
        return run

    keys = {name: await api.make_key("site", "gwas", participant=name) for name in ("north", "west")}
    run = await recorded(("north", "south"))
    for path in (f"{BASE}/runs/{run}/outputs", f"{BASE}/runs/{run}/outputs/results"):
        await api.ok("GET", path, keys["north"])
        await api.ok("GET", path, project)
        status, code, message = await api.refused("GET", path, keys["west"])
        assert (status, code) == (403, "forbidden")
        assert "west took no part in it" in message
    await api.ok("GET", f"{BASE}/runs/{await recorded(None)}/outputs/results", keys["west"])
