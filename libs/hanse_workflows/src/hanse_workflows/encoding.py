"""The model that sites are sent, in fewer bytes where the job says so (`codec.down`); the hub's own stays as it is."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.messages import JobKind, ObjectRef, ReduceJob, Task
from hanse_fabric.messages.reduction_jobs import ENCODED
from hanse_learning.codecs.config import check_chain, sections_of
from hanse_learning.server.config.foreign import codec_digests
from hanse_workflows.ask import Ask
from hanse_workflows.fingerprint import Question
from hanse_workflows.verbs import Body, Verbs

MODEL_SIZE = "model_size"
"""Under which the codecs of a task tell the bytes of the decoded model."""


async def carrying(run: Verbs, key: str, ask: Ask) -> Ask:
    """The same ask, with its model as it travels. The same model is encoded in the same bytes, whatever the step, so
    that a site which has them need not fetch them again.

    Raises:
        RunFailure: TIMEOUT when no aggregator answers.
    """
    codec, model = run.job.codec, ask.model
    if codec is None or not codec.down or model is None:
        return ask
    job = ReduceJob(
        id=key, project=run.project, run=run.run, step=key, kind=JobKind.ENCODE, round=ask.round, strategy={},
        updates=(), model=model, output_key=key,
        codec=sections_of(check_chain(codec.down, "codec.down")), codec_digests=codec_digests(codec.down),
    )  # fmt: skip
    asked = Question({"encode": model, "codec": job.codec, "codec_plugins": job.codec_digests})

    async def do() -> Body:
        reduced = await run.combine(key, asked, job)
        return reduced.outputs[ENCODED].model_dump(mode="json")

    encoded = ObjectRef.model_validate(await run.once(key, asked, do))
    told = {**ask.config["codec"], MODEL_SIZE: model.size}
    return replace(ask, encoded=encoded, config={**ask.config, "codec": told})


def model_of(task: Task) -> ObjectRef | None:
    """The size, as a reference, of the model that a task's answer is an update to."""
    codec = task.config.get("codec")
    if task.model is None or not codec or MODEL_SIZE not in codec:
        return task.model
    return task.model.model_copy(update={"size": codec[MODEL_SIZE]})
