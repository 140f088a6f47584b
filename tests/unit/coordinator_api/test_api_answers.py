"""The OpenAPI document is valid, describes every route, and the handlers answer as it says."""

from __future__ import annotations

import base64
import json
from typing import Any

from argon2.profiles import CHEAPEST
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from browsers import Browser, code_at
from hanse_coordinator.api.openapi import document
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.people.passwords import Passwords
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages import Lineage, ModelVersion, ObjectRef, PublishModel
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms, signed
from hanse_site.joining import proved
from hanse_site.leaving import signed_leaving
from hanse_site.renewal import signed_renewal
from hub_api import Site
from stored_study import stored_study

JOB = {"rounds": 2, "model": {"name": "mlp", "hidden": [8]}}


class Walk:
    """Calls routes by name, and holds each answer against the document that the hub itself serves."""

    def __init__(self, api: Any, key: str, served: dict[str, Any]) -> None:
        self.api, self.key, self.served = api, key, served
        self.walked: set[str] = set()
        self.browser = Browser(api)

    async def __call__(self, name: str, body: Any = None, query: str = "", **path: Any) -> Any:
        route = next(route for route in ROUTES if route.name == name)
        where = route.path.format(**path) + query
        if route.in_person or name in ("sign_in", "start"):
            status, answer = await self.browser.ask(route.method, where, body)
        else:
            status, answer = await self.api.call(route.method, where, self.key, body)
        assert status == route.status, answer
        operation = self.served["paths"][route.path][route.method.lower()]
        schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        self.validate(answer, schema)
        if body is not None:
            self.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
        self.walked.add(name)
        return answer

    def validate(self, value: Any, schema: dict[str, Any]) -> None:
        Draft202012Validator({**schema, "components": self.served["components"]}).validate(value)


def test_the_document_is_valid_openapi_and_has_every_route() -> None:
    made = document(ROUTES)
    validate(made)
    listed = {(method.upper(), path) for path, methods in made["paths"].items() for method in methods}
    assert listed == {(route.method, route.path) for route in ROUTES}
    assert all(route.summary for route in ROUTES)
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def _publication(run: str, content: bytes, number: int) -> PublishModel:
    ref = ObjectRef.model_validate(
        {"digest": digest_bytes(content)[0], "size": len(content), "inline": base64.b64encode(content).decode()}
    )
    lineage = Lineage(
        run=run, round=number, workflow="federated_averaging", participants=("north",), examples=5, strategy={}, seed=0
    )
    return PublishModel(
        project="alpha", model=ref, architecture={"name": "mlp"}, lineage=lineage, metrics={"accuracy": 0.5}
    )


async def test_every_answer_is_as_the_served_document_says(api: Any, operator: str, registry: Any) -> None:
    walk = Walk(api, operator, await api.ok("GET", "/v1/openapi.json"))
    await walk("get_hub")
    schema = {"kind": "tabular", "features": [{"name": "age"}], "target": "y", "classes": 2}
    await walk("create_project", {"name": "alpha", "schema": schema, "description": "d"})
    await walk("list_projects")
    await walk("get_project", project="alpha")

    await _members(walk, api)
    await _runs(walk)
    await _models(walk, registry)
    await _study(walk, await stored_study(api, operator, 60, 31))

    made = await walk("create_key", {"role": "owner", "project": "alpha", "name": "someone"})
    await walk("list_keys")
    await walk("revoke_key", key=made["id"])
    await _people(walk, api)
    await walk("revoke_leaf_key", region="hub", leaf_key=KeyPair.create(KeyKind.USER).public)
    await walk("project_audit", project="alpha")
    await walk("hub_audit", query="?after=0&limit=5")
    await walk("get_status")
    await walk("list_unreadable")
    elsewhere = {"go_to_provider"}  # of test_api_provider, where there is one
    assert {route.name for route in ROUTES if route.answer is not None} == walk.walked | elsewhere


async def _members(walk: Walk, api: Any) -> None:
    await walk("set_absence", {"days": 30}, project="alpha")
    invited = await walk("create_invitation", {"participant": "north", "expires_in": 60}, project="alpha")
    await walk("set_terms", {"owner": "Ward 5", "purpose": "who needs a bed", "minimum_sites": 1}, project="alpha")
    shown = await walk("preview", {"token": invited["token"]})
    site = Site()
    made = AgreedTerms(terms=ProjectTerms.model_validate(shown["terms"]), by="Dr. Day", at=api.clock.now())
    consent = signed(made, "north", site.signing)
    challenge = (await walk("give_challenge", {"token": invited["token"]}))["challenge"]
    await walk("join", proved(invited["token"], challenge, site.signing, site.bus, api.clock.now(), consent))
    said = consent.model_dump(mode="json")
    await walk("give_consent", {"project": "alpha", "participant": "north", "consent": said})
    await walk("renew", signed_renewal("alpha", "north", site.signing, api.clock.now()))
    other = await walk("create_invitation", {"participant": "south"}, project="alpha")
    await walk("list_invitations", project="alpha")
    await walk("revoke_invitation", project="alpha", invitation=other["id"])
    await walk("list_participants", project="alpha")
    await walk("get_participant", project="alpha", participant="north")
    await walk("revoke_participant", project="alpha", participant="north")
    await walk("leave", signed_leaving("alpha", "north", site.signing, "", api.clock.now()))


async def _study(walk: Walk, run: str) -> None:
    for name in ("get_study", "study_points", "study_quantiles", "study_hits"):
        await walk(name, project="gwas", run=run)


async def _people(walk: Walk, api: Any) -> None:
    api.hub.entrance.passwords = Passwords(CHEAPEST)
    await walk("sign_in_ways")
    made = await walk("create_person", {"name": "ada@example.org", "display": "Ada", "role": "owner"})
    await walk("start", {"token": made["token"], "password": "seven grey herons"})
    await walk("sign_in", {"name": "ada@example.org", "password": "seven grey herons"})
    await walk("change_password", {"password": "seven grey herons", "new_password": "nine brown otters"})
    secret = (await walk("ask_totp", {"password": "nine brown otters"}))["secret"]
    await walk("confirm_totp", {"code": code_at(secret, api.clock)})
    api.clock.advance(30)
    await walk("remove_totp", {"password": "nine brown otters", "code": code_at(secret, api.clock)})
    await walk("get_session")
    await walk("sign_out")
    await walk("list_people")
    await walk("get_person", person="ada@example.org")
    await walk("set_rights", {"role": "owner", "projects": ["alpha"]}, person="ada@example.org")
    await walk("reset_person", person="ada@example.org")
    await walk("revoke_person", person="ada@example.org")


async def _runs(walk: Walk) -> None:
    checked = await walk("check_job", {"job": JOB}, project="alpha")
    assert checked["warnings"]
    run = (await walk("submit_run", {"job": JOB}, project="alpha"))["run"]
    await walk("list_runs", project="alpha")
    await walk("get_run", project="alpha", run=run)
    for name in ("pause_run", "resume_run", "cancel_run", "run_metrics", "run_curves", "run_evaluation"):
        await walk(name, project="alpha", run=run)
    ref = ref_of_bytes(b"abc", key=f"models/alpha/{run}/outputs/results")
    walk.api.hub.store.put(ref.key, b"abc")
    await walk.api.hub.buckets.runs.change(
        lambda record: record.model_copy(update={"outputs": {"results": ref.model_dump(mode="json")}}),
        project="alpha", run=run,
    )  # fmt: skip
    listed = await walk("list_outputs", project="alpha", run=run)
    assert [output["name"] for output in listed["outputs"]] == ["results"]
    await walk("download_output", project="alpha", run=run, output="results")
    await walk.api.hub.buckets.runs.change(
        lambda record: record.model_copy(update={"state": "cancelled"}), project="alpha", run=run
    )
    await walk("remove_a_run", project="alpha", run=run)


async def _models(walk: Walk, registry: Any) -> None:
    for number, content in enumerate((b"one", b"two", b"three"), start=1):
        await registry.publish(_publication("a" * 12, content, number))
    announced = {"digest": "0" * 64, "size": 1, "step": {"digests": ["0" * 64]}}
    await walk("upload_object", announced, project="alpha")
    await walk("list_models", project="alpha")
    await walk("get_model", project="alpha", version=1)
    for version in (1, 2):
        body = {"stage": "production", "reason": "better"}
        await walk("promote_model", body, project="alpha", version=version)
        walk.api.clock.advance(1)
    back = await walk("rollback_model", {"reason": "worse"}, project="alpha")
    assert (back["version"], back["stage"]) == (1, "production")
    link = await walk("download_model", project="alpha", version=1)
    signed = ModelVersion.decode(json.dumps(link["version"]).encode())
    assert VerifyKey(signed.public_key).is_valid(signed.signature, signed.statement())
    await walk("delete_model", project="alpha", version=3)
