"""What a task asks, and what answers are cut to, as digests. Their values are a promise, as messages' bytes are."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse_fabric.canonical import canonical
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    Bound,
    Delta,
    LedgerHead,
    Masking,
    MaskingMode,
    ObjectRef,
    PrivacyTerms,
    Ring,
    RingPlan,
    Task,
    TaskKind,
)
from hanse_fabric.messages.masking import Chosen
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.names import derive_seed
from hanse_learning.binding import (
    FIELDS,
    Covered,
    bound_to,
    cut_digest,
    has_sums,
    request_digest,
    task_seed,
    work_digest,
)
from hanse_privacy.ring.plan import make_plan, whole_numbers
from hanse_schemas.job import check_job
from hanse_schemas.resources import FIELD
from hanse_schemas.secure_aggregation import SecureAggregation

AT = datetime(2026, 1, 2, tzinfo=UTC)
MODEL = ObjectRef(digest="a" * 64, size=3, key="models/x")
MASKING = Masking(
    mode=MaskingMode.COMPENSATOR, session="r1-train", minimum=3,
    ring=RingPlan(participants=3, default=Ring(bits=32, fraction=20, bound=8)), compensator=b"A" * 43 + b"=",
)  # fmt: skip
TRAIN = Task(
    id="0" * 32, project="triage", run="abcdefghijkl", step="r1-train", participant="north", workflow="averaging",
    kind=TaskKind.TRAIN, round=1,
    config={"model": {"name": "linear"}, "train": {"epochs": 2}, "evaluate": {"every": 1}},
    seed=5, model=MODEL, peers=3, issued_at=AT, deadline=AT, masking=MASKING, extras={"control": MODEL},
    bound=Bound(job="e" * 64, seed=7),
)  # fmt: skip
STUDY = TRAIN.model_copy(
    update={
        "kind": TaskKind.STUDY, "round": 0, "model": None, "bound": Bound(job="e" * 64, seed=7, key="c1-linear"),
        "config": {"study": {"test": "linear", "chunk": 512}, "step": "linear", "settings": {"first": 0, "last": 256}},
    }
)  # fmt: skip
EVALUATE = TRAIN.model_copy(update={"kind": TaskKind.EVALUATE})
SCAFFOLD = {"steps": 2, "algorithm": "scaffold", "optimizer": {"name": "sgd", "lr": 0.1}}
PRIVACY = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="gaussian", epsilon=1.0), rounds=3, round=1, active=3
)


def ringed(**ring: Any) -> Masking:
    return MASKING.model_copy(update={"ring": MASKING.ring.model_copy(update=ring)})


def noisy(**privacy: Any) -> PrivacyTerms:
    given = PRIVACY.privacy.model_dump(exclude_defaults=True) | privacy
    return PRIVACY.model_copy(update={"privacy": Privacy.model_validate(given)})


OTHER: dict[str, Any] = {
    "id": "1" * 32, "project": "other", "run": "bbbbbbbbbbbb", "step": "r1-train-a2", "participant": "south",
    "workflow": "cyclic", "kind": TaskKind.EVALUATE, "round": 2, "config": {"model": {"name": "logistic"}}, "seed": 6,
    "model": ObjectRef(digest="b" * 64, size=3), "peers": 4, "issued_at": datetime(2027, 1, 1, tzinfo=UTC),
    "deadline": datetime(2027, 1, 1, tzinfo=UTC), "masking": MASKING.model_copy(update={"minimum": 4}),
    "privacy": PRIVACY, "payload": b"x", "extras": {"control": ObjectRef(digest="c" * 64, size=1)}, "trained": 3,
    "bound": Bound(job="f" * 64, seed=7), "ledger": LedgerHead(entries=1, head="a" * 64, signature=b"AQID"),
    "deltas": (Delta(base="a" * 64, makes="b" * 64, ref=MODEL),), "terms": "c" * 64,
}  # fmt: skip


def test_every_field_of_a_task_is_covered_by_a_digest_or_said_to_be_by_none() -> None:
    assert set(FIELDS) == set(Task.model_fields) == set(OTHER)


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_digest_changes_with_the_fields_that_it_covers_and_with_no_other(field: str) -> None:
    scaffold = {"model": {"name": "linear"}, "train": SCAFFOLD}
    train = TRAIN.model_copy(update={"config": scaffold}) if field == "extras" else TRAIN
    changed = train.model_copy(update={field: OTHER[field]})
    covered = FIELDS[field]
    in_request = covered in (Covered.WORK, Covered.REQUEST)
    assert (request_digest(changed) != request_digest(train)) == in_request
    assert (work_digest(changed) != work_digest(train)) == (covered is Covered.WORK)


def test_the_digests_have_their_golden_values() -> None:
    assert request_digest(TRAIN).hex() == "e326db2ce0278e925b5924695b972ad6586bd0d59e648dfea6b12d9cfd4727a8"
    assert (
        request_digest(TRAIN, noise=b"n" * 32).hex()
        == "b41d01c35a240386e146d6478bffe2a1663e69809e0d84293c7ec3f9a914c18f"
    )
    assert [work_digest(task).hex() for task in (TRAIN, EVALUATE, STUDY)] == [
        "1bd80dc1b283287ba472f87c0a8fe05549eeb6042809805ca4a84f56a847eab6",
        "cdbd5ac5bd3585b4548987415ee2c790ad003bfd2d7a48c8eeee3b4f1eb0672a",
        "d7191a9500d256ac98e40adcf844c0657e46db1d6fa4f6a256c142581c87a72f",
    ]


def test_what_is_kept_of_a_task_is_of_no_other_that_is_equal_to_it_or_comes_in_its_place() -> None:
    """Digests are kept by the object: `1 == True` for Python, and the place of an object that is gone is another's."""
    one, other = (TRAIN.model_copy(update={"config": TRAIN.config | {"code": code}}) for code in (1, True))
    assert one == other
    for digest in (work_digest, request_digest):
        assert digest(one) != digest(other)
    seen = {
        digest(TRAIN.model_copy(update={"model": ObjectRef(digest=f"{number:064x}", size=3, key="models/x")}))
        for number in range(100)
        for digest in (work_digest, request_digest)
    }
    assert len(seen) == 200
    assert request_digest(one, noise=b"x") != request_digest(one) != request_digest(one, noise=b"y")


def test_of_settings_a_work_has_names_and_what_differs_from_defaults() -> None:
    """Else a release with one more default would take an old work for a new one."""
    read: dict[str, Any] = {
        "model": {"name": "mlp", "state": [{"match": "hidden.*", "keep": "frozen"}]},
        "train": {"optimizer": {"name": "sgd", "lr": 0.1}},
    }
    given = {"model": read["model"] | {"dropout": 0.0}, "train": read["train"] | {"algorithm": {"name": "fedavg"}}}
    told = {"kind": TaskKind.TRAIN, "model": MODEL, "extras": {}, "reads": read | {"plugins": None}}
    expected = hashlib.sha256(b"hanse work 1\n" + canonical(told)).digest()
    assert work_digest(TRAIN.model_copy(update={"config": given})) == expected


LIMITS: dict[str, Task] = {
    name: TRAIN.model_copy(update=change)
    for name, change in {
        "nothing": {},
        "bound": {"masking": ringed(default=Ring(bits=32, fraction=20, bound=4))},
        "bound of an entry": {"masking": ringed(entries={"weight": Ring(bits=32, fraction=20, bound=8)})},
        "largest weight": {"masking": ringed(largest_weight=2)},
        "out of range": {"masking": ringed(refuse_out_of_range=True)},
        "rotation": {"masking": ringed(rotation="a" * 64)},
        "another rotation": {"masking": ringed(rotation="b" * 64)},
        "privacy": {"privacy": PRIVACY},
        "clip": {"privacy": noisy(clip=2.0)},
        "bounds of metrics": {"privacy": noisy(metrics={"epsilon": 1.0, "bounds": {"loss": 1.0}})},
        "norm of gradients": {"config": {"train": {"clip_norm": 1.0}}},
    }.items()
}


def test_each_limit_that_answers_are_cut_to_makes_another_cut() -> None:
    assert len({cut_digest(task) for task in LIMITS.values()}) == len(LIMITS)
    assert cut_digest(TRAIN).hex() == "4c719f35b9d63c2b23bceacc04ab2d117ecec0e16a1f9c34068c8711d3f38719"


def test_of_a_preparation_it_matters_which_limits_there_are_and_not_of_which_arrays() -> None:
    wide, narrow = Ring(bits=32, fraction=20, bound=8), Ring(bits=32, fraction=20, bound=4)

    def cut(**ring: Any) -> bytes:
        return cut_digest(TRAIN.model_copy(update={"kind": TaskKind.PREPARE, "masking": ringed(**ring)}))

    assert cut(default=wide) == cut(default=wide, entries={"counts": wide})
    assert cut(default=wide, entries={"counts": narrow}) == cut(default=narrow, entries={"limbs": wide})
    assert len({cut(default=wide), cut(default=narrow), cut(default=wide, entries={"counts": narrow})}) == 3
    whole, one = whole_numbers(3), Ring(bits=32, fraction=20, bound=1)
    assert len({cut(default=whole), cut(default=one), cut(default=whole, entries={"limbs": one})}) == 3
    # No order of arrays makes another cut, also where Python has that of a set by how it came about (8 and 16).
    wider = Ring(bits=32, fraction=20, bound=16)
    assert cut(default=wide, entries={"counts": wider}) == cut(default=wider, entries={"limbs": wide})


def test_how_private_a_run_is_and_how_far_it_has_come_cuts_nothing() -> None:
    metrics = [noisy(metrics={"epsilon": epsilon, "bounds": {"loss": 1.0}}) for epsilon in (1.0, 2.0)]
    for same in ([noisy(), noisy(epsilon=2.0), noisy().model_copy(update={"round": 2})], metrics):
        assert len({cut_digest(TRAIN.model_copy(update={"privacy": privacy})) for privacy in same}) == 1


@pytest.mark.parametrize("kind", TaskKind)
def test_a_task_that_says_nothing_of_training_has_a_cut(kind: TaskKind) -> None:
    silent, empty = ({"model": {"name": "linear"}} | train for train in ({}, {"train": {}}))
    cuts = {cut_digest(TRAIN.model_copy(update={"kind": kind, "config": config})) for config in (silent, empty)}
    assert len(cuts) == 1


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        (TaskKind.STUDY, {"study": {"test": "nothing"}}, "task.config.study: "),
        (TaskKind.TRAIN, TRAIN.config | {"preparation": {"version": 1, "columns": 5}}, "task.config.preparation: "),
        (TaskKind.TRAIN, {"code": {"name": "own"}, "settings": float("nan")}, "task.config: it has no digest: "),
    ],
)
def test_settings_that_cannot_be_read_are_named(kind: TaskKind, config: dict[str, Any], told: str) -> None:
    with pytest.raises(HanseError, match=re.escape(told)) as failed:
        work_digest(TRAIN.model_copy(update={"kind": kind, "config": config}))
    assert failed.value.code is ErrorCode.INVALID_INPUT


def test_a_task_without_masks_has_a_cut_of_its_own() -> None:
    plain = TRAIN.model_copy(update={"masking": None})
    assert cut_digest(plain) != cut_digest(TRAIN)
    assert cut_digest(plain).hex() == "bb4cc7dc7aa191aa0aa41c09aa30ccaab9f65763aa517ee60cd0ab7ba61e2144"


@pytest.mark.parametrize(
    "same",
    [
        {"masking": ringed(participants=9, default=Ring(bits=32, fraction=18, bound=8, tail=1.0))},
        {"masking": ringed(chosen=Chosen(fraction=0.1, seed="a" * 64))},
        {"masking": ringed(signs=8)},
        {"round": 2, "model": OTHER["model"], "run": "bbbbbbbbbbbb", "bound": OTHER["bound"], "seed": 9},
    ],
)
def test_who_takes_part_and_what_is_asked_are_no_part_of_the_cut(same: dict[str, Any]) -> None:
    assert cut_digest(TRAIN.model_copy(update=same)) == cut_digest(TRAIN)


def test_the_widest_ring_of_counters_cuts_nothing_however_many_take_part() -> None:
    few, many = (
        make_plan(SecureAggregation(mode="compensator"), participants=count, weighting="uniform") for count in (3, 9)
    )
    asked = [TRAIN.model_copy(update={"masking": MASKING.model_copy(update={"ring": plan})}) for plan in (few, many)]
    assert few != many
    assert cut_digest(asked[0]) == cut_digest(asked[1])


def test_a_task_has_the_same_digests_on_both_sides_of_the_wire() -> None:
    for task in (TRAIN, EVALUATE, STUDY, TRAIN.model_copy(update={"privacy": PRIVACY})):
        read = Task.decode(task.encode())
        assert request_digest(read) == request_digest(task)
        assert work_digest(read) == work_digest(task)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("masking", "ring", "default", "bound"), 1e-300),
        (("masking", "ring", "default", "fraction"), 19),
        (("masking", "ring", "participants"), 4),
        (("masking", "ring", "chosen"), Chosen(fraction=0.1, seed="a" * 64)),
        (("masking", "ring", "signs"), 8),
        (("masking", "session"), "r1-train-s2"),
        (("privacy", "privacy", "clip"), 1e-5),
        (("privacy", "active"), 9),
        (("privacy", "attempt"), 2),
        (("bound", "seed"), 8),
        (("bound", "key"), "c2"),
    ],
)
def test_what_stands_deeper_in_a_task_is_in_its_request_and_not_in_its_work(path: tuple[str, ...], value: Any) -> None:
    task = TRAIN.model_copy(update={"privacy": PRIVACY})

    def changed(part: Any, names: tuple[str, ...]) -> Any:
        return part.model_copy(
            update={names[0]: value if len(names) == 1 else changed(getattr(part, names[0]), names[1:])}
        )

    other = changed(task, path)
    assert request_digest(other) != request_digest(task)
    assert work_digest(other) == work_digest(task)


@pytest.mark.parametrize(
    "config",
    [
        {"train": {"epochs": 2, "batch_size": 32}},
        {"train": {"epochs": 2, "algorithm": {"name": "fedavg"}}},
        {"train": {"epochs": 2, "optimizer": {"learning_rate": 0.05}}},
        {"train": {"epochs": 2, "resources": {"device": "cpu"}}},
        {"evaluate": {"every": 5}},
        {"info": ["steps"]},
        {"something": "that no trainer reads"},
        {"plugins": {"algorithm own": "a" * 64}},
    ],
)
def test_a_setting_that_nobody_reads_or_a_default_that_is_written_out_is_the_same_work(config: dict[str, Any]) -> None:
    other = TRAIN.model_copy(update={"config": TRAIN.config | config})
    assert request_digest(other) != request_digest(TRAIN)
    assert work_digest(other) == work_digest(TRAIN)


@pytest.mark.parametrize(
    "config",
    [
        {"train": {"epochs": 3}},
        {"train": {"epochs": 2, "algorithm": {"name": "fedprox"}}},
        {"train": {"epochs": 2, "optimizer": {"name": "adam", "lr": 0.05}}},
        {"model": {"name": "linear", "outputs": 2}},
        {"code": {"name": "own", "digest": "a" * 64}},
    ],
)
def test_another_setting_that_the_trainer_reads_is_another_work(config: dict[str, Any]) -> None:
    assert work_digest(TRAIN.model_copy(update={"config": TRAIN.config | config})) != work_digest(TRAIN)


def test_algorithms_that_say_nothing_but_their_names_are_different_works() -> None:
    config = TRAIN.config | {"train": {"steps": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}}}
    names = ("fedavg", "fedprox", "ditto", "scaffold", "moon")
    works = {
        work_digest(TRAIN.model_copy(update={"config": config | {"train": config["train"] | {"algorithm": name}}}))
        for name in names
    }
    assert len(works) == len(names)


def test_of_a_model_whose_training_has_sums_within_a_step_no_setting_makes_another_work() -> None:
    """No update is there yet when these sums leave, so nobody could hold it against an earlier one."""

    def fedtan(model: dict[str, Any] | None = None, sent: ObjectRef = MODEL, **train: Any) -> bytes:
        section = {"algorithm": {"name": "fedtan"}, "optimizer": {"name": "sgd"}} | train
        config = {"model": {"name": "mlp", "batch_norm": True} | (model or {}), "train": section}
        return work_digest(TRAIN.model_copy(update={"config": config, "model": sent}))

    frozen = {"state": [{"match": "nothing", "keep": "frozen"}]}
    changed = {"epochs": 3}, {"algorithm": {"name": "fedtan", "patience": 6, "backward": False}}, {"batch_size": 4}
    assert {fedtan(frozen), fedtan({"inputs": [1]}), *(fedtan(**train) for train in changed)} == {fedtan()}
    assert fedtan(sent=OTHER["model"]) != fedtan() != work_digest(TRAIN)


def test_sums_in_the_middle_of_the_work_are_of_training_by_such_an_algorithm_alone() -> None:
    fedtan = {"train": {"algorithm": {"name": "fedtan"}, "optimizer": {"name": "sgd"}}}
    own = {"code": {"name": "own", "digest": "a" * 64}}
    asked = [TRAIN.model_copy(update={"config": config}) for config in (fedtan, {}, TRAIN.config, fedtan | own)]
    assert [has_sums(task) for task in asked] == [True, False, False, False]
    assert not has_sums(asked[0].model_copy(update={"kind": TaskKind.EVALUATE}))


@pytest.mark.parametrize(
    "config",
    [
        {"train": {"loss": "cross_entropy"}},
        {"train": {"loss": {"name": "focal", "gamma": 2.5}, "sample_weights": True}},
        {"train": {"algorithm": {"name": "ditto", "pull": 0.2}}},
        {"model": {"name": "linear", "inputs": [1]}},
        {"model": {"name": "mlp", "dropout": 0.5, "state": [{"match": "nothing", "keep": "frozen"}]}},
        {"preparation": {"version": 1, "columns": [{"kind": "number", "name": "age", "centre": 50.0}]}},
        {"code": {"name": "own", "digest": "a" * 64}, "nothing": "reads this"},
    ],
)
def test_a_model_is_evaluated_as_one_work_whatever_is_said_with_it(config: dict[str, Any]) -> None:
    """What is told of it is often the same, and a sum of fewer sites would tell the difference."""
    other = EVALUATE.model_copy(update={"config": EVALUATE.config | config, "extras": {"other": MODEL}})
    assert request_digest(other) != request_digest(EVALUATE)
    assert work_digest(other) == work_digest(EVALUATE)
    assert work_digest(other.model_copy(update={"model": OTHER["model"]})) != work_digest(EVALUATE)
    assert work_digest(other.model_copy(update={"kind": TaskKind.TRAIN})) != work_digest(EVALUATE)


def test_a_default_of_a_preparation_that_is_written_out_is_the_same_work() -> None:
    def prepared(**column: Any) -> bytes:
        columns = {"columns": [{"kind": "number", "name": "age", "centre": 50.0, **column}]}
        return work_digest(TRAIN.model_copy(update={"config": TRAIN.config | {"preparation": columns}}))

    assert prepared(scale=1, log=False) == prepared()
    assert len({prepared(), prepared(log=True), work_digest(TRAIN)}) == 3


@pytest.mark.parametrize(
    ("kind", "train"),
    [(TaskKind.EVALUATE, {}), (TaskKind.EVALUATE, SCAFFOLD), (TaskKind.EVALUATE, {"algorithm": "ditto"}),
     (TaskKind.TRAIN, {}), (TaskKind.TRAIN, {"algorithm": "fedtan", "optimizer": {"name": "sgd"}})],
)  # fmt: skip
def test_an_object_that_is_sent_with_a_task_which_does_not_read_it_is_the_same_work(
    kind: TaskKind, train: dict[str, Any]
) -> None:
    task = TRAIN.model_copy(
        update={"kind": kind, "extras": None, "config": {"model": {"name": "linear"}, "train": train}}
    )
    for extras in ({"control": MODEL}, {"other": MODEL}):
        other = task.model_copy(update={"extras": extras})
        assert request_digest(other) != request_digest(task)
        assert work_digest(other) == work_digest(task)


def test_site_code_may_read_whatever_it_is_given() -> None:
    own = TRAIN.model_copy(update={"config": {"code": {"name": "own", "digest": "a" * 64}}})
    assert work_digest(own.model_copy(update={"extras": {"other": MODEL}})) != work_digest(own)


def test_how_a_study_is_cut_and_what_its_owner_knows_of_it_is_the_same_work() -> None:
    for section in ({"chunk": 256}, {"in_flight": 1}, {"few_cohorts": True}, {"few_samples": True}, {"vif": 50}):
        told = STUDY.config["study"] | section
        other = STUDY.model_copy(update={"config": STUDY.config | {"study": told}})
        assert work_digest(other) == work_digest(STUDY)
    for part in ({"study": {"test": "linear", "sex": True}}, {"step": "other"}, {"settings": {"first": 256}}):
        assert work_digest(STUDY.model_copy(update={"config": STUDY.config | part})) != work_digest(STUDY)


@pytest.mark.parametrize("kind", [TaskKind.SHARE, TaskKind.INITIALIZE])
def test_a_task_whose_answer_is_not_summed_is_no_work(kind: TaskKind) -> None:
    with pytest.raises(HanseError, match=r"task\.kind"):
        work_digest(TRAIN.model_copy(update={"kind": kind}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
CONFIGS = st.dictionaries(st.text(max_size=9), JSON, max_size=4)


@given(CONFIGS, CONFIGS)
def test_requests_are_equal_where_their_settings_are_and_nowhere_else(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    def digest(config: dict[str, Any]) -> bytes:
        return request_digest(Task.decode(TRAIN.model_copy(update={"config": config}).encode()))

    assert digest(one) == digest(dict(reversed(one.items())))
    assert (digest(one) == digest(other)) == (repr_of(one) == repr_of(other))


def repr_of(config: Any) -> Any:
    """The settings told apart by type, too: 1, 1.0 and True are equal in Python, and are three settings."""
    if isinstance(config, dict):
        return sorted((name, repr_of(value)) for name, value in config.items())
    return [repr_of(value) for value in config] if isinstance(config, list) else repr(config)


@given(CONFIGS, CONFIGS)
def test_site_code_reads_all_of_its_settings(one: dict[str, Any], other: dict[str, Any]) -> None:
    def digest(settings: dict[str, Any]) -> bytes:
        config = {"code": {"name": "own", "digest": "a" * 64}, "model": settings}
        return work_digest(TRAIN.model_copy(update={"config": config}))

    assert (digest(one) == digest(other)) == (repr_of(one) == repr_of(other))


def test_site_code_reads_its_settings_of_training_but_for_where_it_trains() -> None:
    def digest(**train: Any) -> bytes:
        config = {"code": {"name": "own", "digest": "a" * 64}, "train": train}
        return work_digest(TRAIN.model_copy(update={"config": config}))

    assert digest(epochs=1) != digest(epochs=2)
    assert digest(epochs=1, **{FIELD: "gpu"}) == digest(epochs=1)
    # What the hub wants to be told beside the answer changes no answer.
    own = {"code": {"name": "own", "digest": "a" * 64}}
    asked = [TRAIN.model_copy(update={"config": own | info}) for info in ({}, {"info": ["steps"]})]
    assert len({work_digest(task) for task in asked}) == 1


def test_seeds_are_those_of_release_0_1_0() -> None:
    assert task_seed(TaskKind.TRAIN, 7, 3, "north") == derive_seed(7, 3, "north", "train")
    assert task_seed(TaskKind.EVALUATE, 7, 3, "north") == derive_seed(7, 3, "north", "evaluate")
    assert task_seed(TaskKind.STUDY, 7, "c1-linear", "north") == derive_seed(7, "c1-linear", "north")


def test_a_job_is_bound_by_what_it_says_beside_defaults() -> None:
    body = {"rounds": 2, "model": {"name": "linear"}, "seed": 7}
    assert bound_to(check_job(body)) == bound_to(check_job(body | {"checkpoint_every": 1}))
    assert bound_to(check_job(body)) != bound_to(check_job(body | {"checkpoint_every": 2}))
    assert bound_to(check_job(body), "c1").key == "c1"
    # A release with one more default binds the same job to the same.
    told = b'{"model":{"name":"linear"},"rounds":2,"seed":7}'
    assert bound_to(check_job(body)) == Bound(job=hashlib.sha256(told).hexdigest(), seed=7)


def test_how_columns_are_scaled_and_filled_is_no_part_of_the_work_of_counting_them() -> None:
    def preparing(*columns: dict[str, Any]) -> Task:
        return TRAIN.model_copy(update={"kind": TaskKind.PREPARE, "config": {"prepare": list(columns)}, "model": None})

    age, ward = {"name": "age", "kind": "number"}, {"name": "ward", "kind": "category", "values": ["a", "b"]}
    one = preparing(age, ward)
    other = preparing({**age, "log": True, "scale": "none"}, {**ward, "form": "hashed", "rare": 5})
    assert work_digest(one) == work_digest(other)
    assert request_digest(one) != request_digest(other)
    assert work_digest(one) != work_digest(preparing(age))
    assert work_digest(one.model_copy(update={"model": MODEL, "extras": None})) == work_digest(one)
    with pytest.raises(HanseError, match=r"prepare\.columns: None is not a list of 1 to 300 columns"):
        work_digest(TRAIN.model_copy(update={"kind": TaskKind.PREPARE}))


def test_with_noise_other_ends_of_a_column_are_another_work_and_without_it_none() -> None:
    """With noise each sum is charged for, and is a part of no exact one."""

    def work(most: float, privacy: PrivacyTerms | None) -> bytes:
        config = {"prepare": [{"name": "age", "kind": "number", "clip": [0, most]}]}
        given = {"kind": TaskKind.PREPARE, "config": config, "model": None, "privacy": privacy}
        return work_digest(TRAIN.model_copy(update=given))

    assert work(90, None) == work(100, None)
    works = (work(100, None), work(100, PRIVACY), work(90, PRIVACY), work(100, noisy(epsilon=2.0)))
    assert len(set(works)) == len(works)


def test_what_raw_columns_become_is_part_of_the_work() -> None:
    columns = ({"kind": "number", "name": "age", "centre": centre} for centre in (0.0, 1.0))
    prepared = [
        TRAIN.model_copy(update={"config": TRAIN.config | {"preparation": {"version": 1, "columns": [column]}}})
        for column in columns
    ]
    assert len({work_digest(each) for each in (TRAIN, *prepared)}) == 3


def test_how_examples_are_weighed_is_part_of_the_work_of_training_on_them() -> None:
    losses: list[dict[str, Any]] = [{"loss": {"name": "focal"}}, {"loss": "cross_entropy"}, {"sample_weights": True}]
    trained = [TRAIN.model_copy(update={"config": TRAIN.config | {"train": train}}) for train in losses]
    assert len({work_digest(each) for each in trained}) == 3


@pytest.mark.parametrize("nothing", [{}, {"model": None}, {"model": {}}])
def test_the_work_of_a_task_that_names_no_model_is_refused_by_name(nothing: dict[str, Any]) -> None:
    with pytest.raises(HanseError, match=r"^model") as raised:
        work_digest(TRAIN.model_copy(update={"config": {"train": {"epochs": 2}} | nothing}))
    assert raised.value.code is ErrorCode.INVALID_INPUT
