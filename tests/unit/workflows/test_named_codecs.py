"""A reduction says how its updates are encoded: aggregators decode them by what it says, and by nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hanse_fabric.messages import ObjectRef, Reduced, ReduceJob
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_schemas.job import check_job
from hanse_workflows import Verbs, next_model, reduce
from hanse_workflows.outcomes import Answer
from hanse_workflows.verbs import Body

CHAIN = [{"name": "top_k", "fraction": 0.25}, {"name": "float16"}]
MODEL = ref_of_bytes(b"model")
RUN = "a" * 12
DIGESTS = {"of_somebody": "b" * 64}


async def reduced(
    monkeypatch: pytest.MonkeyPatch, *, model: ObjectRef | None = MODEL, number: int = 1, **changes: Any
) -> tuple[ReduceJob, Mapping[str, Any]]:
    """What an aggregator is told to do, and what the reduction's fingerprint is made of."""
    given: list[tuple[ReduceJob, Mapping[str, Any]]] = []

    async def once(_key: str, _asked: Mapping[str, Any], do: Callable[[], Awaitable[Body]]) -> Body:
        return await do()

    async def combine(key: str, asked: Mapping[str, Any], job: ReduceJob) -> Reduced:
        given.append((job, asked))
        return Reduced(job=key, project=job.project, run=job.run, step=job.step, outputs={"model": MODEL})

    monkeypatch.setattr(next_model, "codec_digests", lambda _chain: DIGESTS)
    job = check_job({"rounds": 2, "model": {"name": "linear"}, "participants": {"minimum": 3}, **changes})
    run = cast("Verbs", SimpleNamespace(project="p", run=RUN, job=job, once=once, combine=combine))
    answers = (Answer(participant="north", examples=3, update=ref_of_bytes(b"update")),)
    await reduce(run, "r1-reduce", round=number, answers=answers, model=model, needed=1)
    return given[0]


async def test_a_reduction_names_the_codecs_of_its_updates_with_all_of_their_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, asked = await reduced(monkeypatch, codec={"up": CHAIN})
    assert job.codec is not None
    assert [(each["name"], each.get("fraction")) for each in job.codec] == [("top_k", 0.25), ("float16", None)]
    assert job.codec_digests == DIGESTS
    assert (asked["codec"], asked["codec_plugins"]) == (job.codec, DIGESTS)


@pytest.mark.parametrize(
    "of",
    [
        {}, {"codec": {"down": [{"name": "float16"}]}}, {"codec": {"up": CHAIN}, "model": None},
        {"codec": {"up": CHAIN}, "number": 0},
        {"codec": {"up": [{"name": "random_k", "fraction": 0.5}]}, "secure_aggregation": {"mode": "compensator"}},
    ],
    ids=["no codecs", "none of updates", "a first model", "before the first round", "what the ring says"],
)  # fmt: skip
async def test_what_is_not_encoded_is_reduced_without_codecs(
    of: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = await reduced(monkeypatch, **of)
    assert (job.codec, job.codec_digests) == (None, None)
    assert "codec" not in asked
