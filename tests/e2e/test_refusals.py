"""What a hub of real processes refuses, and in which words. `docs/refusals.md` lists all refusals with their tests.

The hostile and the clumsy sites here have real credentials: they enrolled as every site does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import hanse
from e2e.deployed import (
    START,
    Answer,
    DeployedHub,
    completed,
    hand_in,
    honest,
    project_url,
    publish_result,
    site,
    start_job,
    tensors,
)
from hanse.embedded.hub import EmbeddedHub
from hanse.hub import Project, Run
from hanse.site import PlainTask
from hanse.views import Event
from hanse_fabric.bus.issuing import region_of
from hanse_fabric.bus.jwt import credentials, read_credentials, user_jwt
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import ObjectRef, Outcome
from hanse_fabric.messages.objects import update_key
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.subjects import DOORS, TELL, Door
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_site.answering import result_for
from hanse_site.remote import ask_upload

GOOD = {name: np.ones_like(array) for name, array in START.items()}
LARGE = {"weight": np.zeros((200, 200), np.float32)}


def refusal_of(attempt: Callable[[], object], code: ErrorCode) -> HanseError:
    """The refusal; it has the code, and says what to do."""
    with pytest.raises(HanseError) as caught:
        attempt()
    assert caught.value.code is code, str(caught.value)
    assert caught.value.hint, str(caught.value)
    return caught.value


def events(run: Run, kind: str) -> list[Event]:
    return [event for event in run.watch() if event.kind == kind]


def run_with(project: Project, folder: Path, bad: Answer, good: Answer | None = None, **changes: Any) -> Run:
    """A completed run of two honest sites and `bad`, who is called east."""
    with ExitStack() as stack:
        for name, answer in (("north", good or honest()), ("south", good or honest()), ("east", bad)):
            stack.enter_context(site(project, name, folder, answer))
        start = changes.pop("start", START)
        changes["participants"] = {"minimum": 2, "patience": 30.0} | changes.get("participants", {})
        return completed(project.run(start_job(project, start, **changes)))


def check_left_out(run: Run, expected: str) -> None:
    """East was left out for a reason that has `expected` in it, and what to do; the model is the two others'."""
    refused = events(run, "refused")
    assert [event.data["participant"] for event in refused] == ["east"]
    assert expected in refused[0].data["reason"], refused[0].data["reason"]
    assert refused[0].data["reason"].endswith(")"), f"without a hint: {refused[0].data['reason']}"
    assert list(run.model.view.lineage.participants) == ["north", "south"]


# Keys and tokens


def test_a_wrong_key_and_a_revoked_key_are_refused(hub: DeployedHub, project: Project) -> None:
    with hanse.connect(hub.hub.url, api_key=make_api_key().text) as stranger:
        refusal_of(lambda: stranger.projects.get(project.name), ErrorCode.UNAUTHENTICATED)
    with api(hub) as http:
        issued = http.post("/v1/keys", json={"role": "owner", "project": project.name}).raise_for_status().json()
        with hanse.connect(hub.hub.url, api_key=issued["key"]) as owner:
            assert owner.projects.get(project.name).name == project.name
            http.delete(f"/v1/keys/{issued['id']}").raise_for_status()
            refusal_of(lambda: owner.projects.get(project.name), ErrorCode.UNAUTHENTICATED)


def test_a_token_works_once_and_not_after_its_time(project: Project, tmp_path: Path) -> None:
    token = project.invite("north")
    with hanse.join(project_url(project), token, home=tmp_path / "first"):
        refusal = refusal_of(
            lambda: hanse.join(project_url(project), token, home=tmp_path / "second"), ErrorCode.CONFLICT
        )
    assert "north" in refusal.message
    brief = project.invite("south", expires_in=0.001)
    refusal = refusal_of(lambda: hanse.join(project_url(project), brief, home=tmp_path / "third"), ErrorCode.GONE)
    assert "expired" in refusal.message


def test_a_clock_an_hour_off_is_refused_and_the_token_stays_good(
    hub: DeployedHub, project: Project, tmp_path: Path
) -> None:
    token = project.invite("north")
    body = {
        "token": token,
        "public_key": base64.b64encode(SigningKey.create().public_bytes).decode(),
        "bus_key": KeyPair.create(KeyKind.USER).public,
        "sent_at": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }
    with api(hub) as http:
        answer = http.post("/v1/join", json=body)
    assert answer.status_code == ErrorCode.CLOCK_SKEW.value.http_status
    error = answer.json()["error"]
    assert error["code"] == "clock-skew"
    assert "NTP" in error["hint"]
    with hanse.join(project_url(project), token, home=tmp_path):
        pass


def test_a_site_reaches_no_subject_but_its_own_and_none_once_it_is_revoked(project: Project, tmp_path: Path) -> None:
    project.invite("south")
    with hanse.join(project_url(project), project.invite("north"), home=tmp_path) as joined:
        bus, do = joined._link.bus, joined._worker.do
        south = {"region": "hub", "project": project.name, "participant": "south"}
        refusal_of(lambda: do(bus.request(DOORS[Door.RESULT].of(**south), b"{}")), ErrorCode.FORBIDDEN)

        async def hear_what_south_is_told() -> None:
            async with bus.hear(TELL.of(**south)) as told:
                await anext(told)

        refusal_of(lambda: do(hear_what_south_is_told()), ErrorCode.FORBIDDEN)
        do(joined._link.presence())
        project.revoke("north")
        refusal_of(lambda: do(joined._link.presence()), ErrorCode.UNAUTHENTICATED)


def test_a_site_with_a_token_of_release_0_1_0_comes_back_with_another(project: Project, tmp_path: Path) -> None:
    with hanse.join(project_url(project), project.invite("north"), home=tmp_path) as joined:
        creds = joined.identity.creds
    _, key = read_credentials(creds.read_text())
    old = user_jwt(KeyPair.create(KeyKind.ACCOUNT), key.public, "north", {"publish": [], "subscribe": []})
    creds.write_text(credentials(old, key))
    with hanse.join(project_url(project), None, home=tmp_path) as back:
        back._worker.do(back._link.presence())
    assert region_of(read_credentials(creds.read_text())[0]) == "hub"


# Updates


def altered(change: Callable[[dict[str, np.ndarray]], None]) -> bytes:
    arrays = {name: array.copy() for name, array in GOOD.items()}
    change(arrays)
    return tensors(arrays)


def _spoil(name: str, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: arrays[name].__setitem__((0,), value)


BAD: dict[str, tuple[bytes, str]] = {
    "not a number": (altered(_spoil("bias", np.nan)), "bias"),
    "infinite": (altered(_spoil("weight", -np.inf)), "weight"),
    "of another shape": (altered(lambda arrays: arrays.update(bias=np.ones(5, np.float32))), "shape [5]"),
    "of another type": (altered(lambda arrays: arrays.update(bias=np.ones(3, np.float64))), "dtype F64"),
    "without an entry": (altered(lambda arrays: arrays.__delitem__("bias")), "bias is missing"),
    "no tensor file": (b"\x80\x04 pickled, perhaps", "not safetensors"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_update_that_cannot_be_reduced_is_left_out_and_named(project: Project, tmp_path: Path, what: str) -> None:
    data, expected = BAD[what]
    check_left_out(run_with(project, tmp_path, lambda task: hand_in(task, data)), expected)


def test_an_update_whose_bytes_are_not_the_announced_ones_is_left_out(project: Project, tmp_path: Path) -> None:
    announced, sent = tensors(GOOD), altered(_spoil("bias", 7.0))
    run = run_with(project, tmp_path, lambda task: hand_in(task, sent, ref_of_bytes(announced)))
    check_left_out(run, "digest")


def test_an_update_larger_than_announced_is_left_out(project: Project, tmp_path: Path) -> None:
    announced = tensors(GOOD)
    run = run_with(project, tmp_path, lambda task: hand_in(task, announced + b"\0" * 999, ref_of_bytes(announced)))
    check_left_out(run, "announced")


def test_an_upload_larger_than_announced_is_left_out(project: Project, tmp_path: Path) -> None:
    def bad(task: PlainTask) -> None:
        announced = tensors({"weight": np.full((200, 200), 2, np.float32)})  # not what the honest upload
        asked, link = task._found.task, task._site._link
        digest = ref_of_bytes(announced).digest
        key = update_key(asked.project, asked.run, asked.participant, asked.id, digest)
        ref = ref_of_bytes(announced, key=key)
        path = task._site.identity.home / "large"
        path.write_bytes(announced + b"\0" * 4096)
        state = task._site._worker.do(ask_upload(link.doors, asked, ref, UploadStep(digests=(digest,))))
        with pytest.raises(HanseError, match="SignatureDoesNotMatch"):
            link._transfer.send_part(path, state.parts[0], 0, ref.size + 4096)
        task._answer(update=ref, examples=1)

    check_left_out(run_with(project, tmp_path, bad, start=LARGE), "never stored whole")


def test_an_announcement_larger_than_the_model_allows_gets_no_link_and_no_place(
    project: Project, tmp_path: Path
) -> None:
    refusals: list[HanseError] = []

    def bad(task: PlainTask) -> None:
        ref = ObjectRef(digest="0" * 64, size=1 << 40, key=f"updates/{project.name}/x/{'0' * 64}")
        with pytest.raises(HanseError) as caught:
            task._site._worker.do(task._site._link.send_update(task._found.task, tmp_path / "none", ref=ref))
        refusals.append(caught.value)
        task._answer(update=ref, examples=1)

    run = run_with(project, tmp_path, bad)
    assert refusals[0].code is ErrorCode.TOO_LARGE
    assert list(run.model.view.lineage.participants) == ["north", "south"]
    answered = [event.data for event in events(run, "task-answered") if event.data["participant"] == "east"]
    assert "more than" in answered[0]["reason"]


def held_until(event: threading.Event) -> Answer:
    """Honest, but after `event`: so that what it waits for is heard in an open round."""
    answer = honest()

    def waiting(task: PlainTask) -> None:
        assert event.wait(60)
        answer(task)

    return waiting


def test_a_forged_signature_is_refused_and_is_no_answer(project: Project, tmp_path: Path) -> None:
    published = threading.Event()

    def bad(task: PlainTask) -> None:
        update = tensors(GOOD)
        unsigned = result_for(task._found.task, Outcome.DONE, update=ref_of_bytes(update), examples=1)
        task._site._worker.do(task._site._link.send_update_bytes(task._found.task, ref_of_bytes(update), update))
        signature = SigningKey.create().sign(unsigned.canonical(without=frozenset({"signature"})))
        publish_result(task, unsigned.model_copy(update={"signature": signature}).encode())
        published.set()

    run = run_with(project, tmp_path, bad, held_until(published), participants={"grace": 0.0})
    check_left_out(run, "signature")


def test_a_message_of_an_unknown_version_is_refused(project: Project, tmp_path: Path) -> None:
    published = threading.Event()

    def bad(task: PlainTask) -> None:
        result = result_for(task._found.task, Outcome.DONE, update=ref_of_bytes(tensors(GOOD)), examples=1)
        body = json.loads(result.canonical()) | {"schema": "hanse.result/99"}
        publish_result(task, json.dumps(body).encode())
        published.set()

    run = run_with(project, tmp_path, bad, held_until(published), participants={"grace": 0.0})
    check_left_out(run, "hanse.result/99")
    assert "hanse.result/1" in events(run, "refused")[0].data["reason"]


def test_an_update_for_a_closed_round_is_refused_and_counted(project: Project, tmp_path: Path) -> None:
    second, late = threading.Event(), threading.Event()

    def good(task: PlainTask) -> None:
        if task.round == 2:
            second.set()
            assert late.wait(60)
        honest()(task)

    def bad(task: PlainTask) -> None:
        if task.round == 1:
            model = task.model()
            assert second.wait(60)
            task.push({name: array + 100 for name, array in model.items()}, examples=1)
            late.set()

    run = run_with(project, tmp_path, bad, good, rounds=2, participants={"grace": 0.0})
    told = events(run, "late-result")
    assert [(event.data["participant"], event.data["step"], event.data["count"]) for event in told] == [
        ("east", "r1-train", 1)
    ]
    assert any(entry["action"] == "result.refuse" and "late" in str(entry) for entry in project.audit())
    assert list(run.model.view.lineage.participants) == ["north", "south"]


def test_a_closed_rounds_model_is_not_handed_out_any_more(project: Project, tmp_path: Path) -> None:
    second, refused = threading.Event(), threading.Event()
    refusals: list[HanseError] = []

    def good(task: PlainTask) -> None:
        if task.round == 2:
            second.set()
            assert refused.wait(60)
        honest()(task)

    def bad(task: PlainTask) -> None:
        if task.round == 1:
            assert second.wait(60)
            with pytest.raises(HanseError) as caught:
                task.model()
            refusals.append(caught.value)
            refused.set()

    run_with(project, tmp_path, bad, good, start=LARGE, rounds=2, participants={"grace": 0.0})
    assert refusals[0].code is ErrorCode.GONE
    assert "wait for the next task" in str(refusals[0])


# Jobs


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"roundz": 3}, "roundz"),
        ({"participants": {"minimum": 2, "quorums": 1}}, "quorums"),
        ({"participants": {"quorum": 1.5}}, "quorum"),
        ({"participants": {"minimum": 0}}, "minimum"),
        ({"participants": {"grace": 10, "deadline": 5}}, "grace"),
        ({"strategy": {"reduction": {"name": "average"}}}, "average"),
        ({"initial_model": "0" * 64}, "upload"),
    ],
)
def test_a_job_that_cannot_run_is_refused_by_both_sides(
    hub: DeployedHub, project: Project, tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    job = {"rounds": 1, "model": {"name": "logistic"}, **change}
    with api(hub) as http:
        answer = http.post(f"/v1/projects/{project.name}/runs", json={"job": job})
    assert answer.status_code in (400, 404), answer.text
    assert expected in answer.text
    assert answer.json()["error"]["hint"]
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(job))
    with pytest.raises(HanseError) as caught:
        project.run(path)
    assert expected in str(caught.value)
    assert project.runs() == []


def test_a_quorum_of_more_sites_than_there_are_is_told_at_once_and_fails_at_its_patience(
    project: Project, tmp_path: Path
) -> None:
    job = {
        "rounds": 1, "model": {"name": "logistic"}, "initial_model": project.upload_model(START),
        "participants": {"minimum": 50, "patience": 0.5},
    }  # fmt: skip
    assert "50" in str(project.check(job))
    with site(project, "north", tmp_path, honest()):
        run = project.run(job).wait()
    assert run.state == "failed"
    assert "50" in run.view.reason


# The hub's own state


def test_two_hubs_do_not_share_a_state_folder(hub: DeployedHub) -> None:
    async def second() -> None:
        async with EmbeddedHub(hub.folder):
            pass

    refusal = refusal_of(lambda: asyncio.run(second()), ErrorCode.LOCKED)
    assert str(hub.folder) in refusal.message
    assert "--state" in refusal.hint


def api(hub: DeployedHub) -> httpx.Client:
    """The HTTP API as any client meets it, with the operator's key."""
    headers = {"Authorization": f"Bearer {hub.hub.api_key}"}
    return httpx.Client(base_url=hub.hub.url, headers=headers, trust_env=False, timeout=20)


def test_every_test_that_the_page_of_refusals_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (root / "docs" / "refusals.md").read_text())
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}" in (root / file).read_text(), f"{file}::{test}"
