"""What each right becomes in the bus's permissions, of a small table of subjects."""

from __future__ import annotations

from typing import cast

import pytest

from hanse_fabric.bus import permissions
from hanse_fabric.bus.permissions import permissions_for, permissions_of_leaf
from hanse_fabric.subjects import LINK, STREAMS, Door, Role, Stream, Subject, Verb

S, P = Role.AGGREGATOR, Role.PARTICIPANT
TASKS, JOBS = Stream("TASKS"), Stream("JOBS", workers="crew")


def row(pattern: str, stream: Stream | None = None, **rights: set[Verb]) -> Subject:
    return Subject(pattern, stream, {Role[name]: frozenset(verbs) for name, verbs in rights.items()})


def granted(monkeypatch: pytest.MonkeyPatch, role: Role, *rows: Subject) -> dict[str, list[str]]:
    monkeypatch.setattr(permissions, "SUBJECTS", rows)
    return permissions_for(role, project="p", participant="n")


OWN, INBOX = ["_INBOX.p.n.>"], ["_INBOX.aggregator.>"]
TASK = "h.task.{project}.{participant}.{step}"


CALLS: list[tuple[Verb, Stream | None, list[str]]] = [
    (Verb.PUBLISH, TASKS, ["h.task.*.*.*"]),
    (Verb.REQUEST, None, ["h.task.*.*.*"]),
    (Verb.SERVE, None, []),
    (Verb.TELL, None, ["h.task.*.*.*"]),
    (Verb.HEAR, None, []),
    (Verb.HEAR, TASKS, []),
    (Verb.FOLLOW, TASKS, ["$JS.API.CONSUMER.CREATE.TASKS.*.h.task.>", "$JS.API.STREAM.MSG.GET.TASKS"]),
    (Verb.LAST, TASKS, ["$JS.API.DIRECT.GET.TASKS.h.task.*.*.*", "$JS.API.STREAM.MSG.GET.TASKS"]),
    (Verb.PURGE, TASKS, ["$JS.API.STREAM.PURGE.TASKS"]),
    (Verb.WORK, JOBS, ["$JS.ACK.JOBS.crew.>", "$JS.API.CONSUMER.MSG.NEXT.JOBS.crew"]),
    (Verb.FOLLOW, None, []),
]


def test_every_right_has_its_calls_and_an_unknown_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {verb for verb, _, _ in CALLS} == set(Verb)
    with pytest.raises(AssertionError, match="hearsay"):
        granted(monkeypatch, S, row(TASK, TASKS, AGGREGATOR={cast("Verb", "hearsay")}))


@pytest.mark.parametrize(("verb", "stream", "publish"), CALLS)
def test_a_services_right_becomes_these_calls_and_no_more(
    monkeypatch: pytest.MonkeyPatch, verb: Verb, stream: Stream | None, publish: list[str]
) -> None:
    subscribe = sorted([*INBOX, "h.task.*.*.*"]) if verb in (Verb.SERVE, Verb.HEAR) else INBOX
    others = row("h.other.{project}", TASKS, COORDINATOR=set(Verb))
    made = granted(monkeypatch, S, row(TASK, stream, AGGREGATOR={verb}), others)
    assert made == {"publish": publish, "subscribe": subscribe}


@pytest.mark.parametrize(
    ("pattern", "verb", "publish"),
    [
        (TASK, Verb.PUBLISH, ["h.task.p.n.*"]),
        (TASK, Verb.FOLLOW, ["$JS.API.CONSUMER.CREATE.TASKS.*.h.task.p.n.>"]),
        (TASK, Verb.LAST, ["$JS.API.DIRECT.GET.TASKS.h.task.p.n.*"]),
        ("h.roster.{project}", Verb.FOLLOW, ["$JS.API.CONSUMER.CREATE.TASKS.*.h.roster.p"]),
        ("h.sum.{run}.{project}", Verb.FOLLOW, ["$JS.API.CONSUMER.CREATE.TASKS.*.h.sum.>"]),
    ],
)
def test_a_participants_right_is_bound_to_its_project_and_name(
    monkeypatch: pytest.MonkeyPatch, pattern: str, verb: Verb, publish: list[str]
) -> None:
    made = granted(monkeypatch, P, row(pattern, TASKS, PARTICIPANT={verb}))
    assert made == {"publish": publish, "subscribe": OWN}


def test_permissions_of_several_rows_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(f"h.{name}.{{project}}", None, AGGREGATOR={Verb.REQUEST, Verb.SERVE}) for name in ("z", "a", "m", "b")]
    made = granted(monkeypatch, S, *rows)
    assert made["publish"] == ["_INBOX.aggregator.>", "h.a.*", "h.b.*", "h.m.*", "h.z.*"]
    assert made["subscribe"] == ["_INBOX.aggregator.>", "h.a.*", "h.b.*", "h.m.*", "h.z.*"]


def test_a_leaf_node_lets_in_what_sites_may_do_and_no_services_answers() -> None:
    leaf = permissions_of_leaf("eu")
    assert leaf["subscribe"] == ["_INBOX.*.*.>", "hanse.v1.tell.eu.*.*"]
    assert leaf["publish"] == sorted(f"hanse.v1.door.eu.{kind}.*.*" for kind in Door)


def test_a_service_answers_those_who_may_ask_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    door = row("h.door.{project}.{participant}", None, AGGREGATOR={Verb.SERVE}, PARTICIPANT={Verb.REQUEST})
    assert granted(monkeypatch, S, door)["publish"] == ["_R_.>"]
    inner = row("h.inner.{project}", None, AGGREGATOR={Verb.SERVE}, COORDINATOR={Verb.REQUEST})
    assert granted(monkeypatch, S, inner)["publish"] == ["_INBOX.coordinator.>"]


def test_a_site_of_release_0_1_is_answered_by_who_links_sites_and_by_nobody_else() -> None:
    answers = {role for role in Role if "_INBOX.*.*.*.r.*" in permissions_for(role)["publish"]}
    assert answers == {role for role, verbs in LINK.rights.items() if Verb.SERVE in verbs} == {Role.COORDINATOR}


def test_no_role_may_write_where_answers_to_others_go() -> None:
    asked = {Role.COORDINATOR: {"model-registry", "aggregator", "compensator"}, Role.AGGREGATOR: {"coordinator"}}
    for role in Role:
        for subject in permissions_for(role, region="hub", project="p", participant="n")["publish"]:
            if subject.startswith("_INBOX") and subject != "_INBOX.*.*.*.r.*":
                assert role.value in asked[Role(subject.split(".")[1])]


def test_sites_reach_no_part_of_jetstream_and_no_record() -> None:
    every = permissions_for(P, region="hub", project="p", participant="n")
    assert all(subject.startswith("hanse.v1.door.hub.") and subject.endswith(".p.n") for subject in every["publish"])
    assert every["subscribe"] == ["_INBOX.p.n.>", "hanse.v1.tell.hub.p.n"]


def test_who_makes_backs_up_and_restores_streams_may_do_so_for_every_stream() -> None:
    def of(role: Role) -> set[str]:
        return set(permissions_for(role)["publish"])

    for stream in STREAMS:
        name, workers = stream.name, stream.workers
        assert {f"$JS.API.STREAM.{call}.{name}" for call in ("CREATE", "UPDATE", "INFO")} <= of(Role.PROVISIONER)
        consumer = {
            f"$JS.API.CONSUMER.{call}.{name}.{workers}" for call in ("DURABLE.CREATE", "CREATE", "INFO")
        }  # fmt: skip
        assert (consumer <= of(Role.PROVISIONER)) is bool(workers)
        snapshot = {f"$JS.API.STREAM.INFO.{name}", f"$JS.API.STREAM.SNAPSHOT.{name}", f"$JS.SNAPSHOT.ACK.{name}.>"}
        assert snapshot <= of(Role.BACKUP)
        restore = {f"$JS.API.STREAM.{call}.{name}" for call in ("INFO", "DELETE", "RESTORE")}
        assert restore | {f"$JS.SNAPSHOT.RESTORE.{name}.>"} <= of(Role.RESTORER)
