"""Models that a former release has written are files of the one form that sites take under masks."""

from __future__ import annotations

import pytest

from hanse_fabric.messages import Task
from hanse_fabric.subjects import TASK
from hanse_fabric.tensors.file import own_header
from releases.recording import recordings, run_recording
from releases.story import Story, is_of

RELEASE = "0.1.0"
STUDIES = "run-study"
"""Their objects are arrays of another kind, of which sites take any."""


@pytest.mark.parametrize("name", [name for name in recordings(RELEASE, "run-") if not name.startswith(STUDIES)])
def test_each_model_that_0_1_0_sent_has_the_header_that_this_release_writes(name: str) -> None:
    asked = [one for one in Story(run_recording(RELEASE, name)).said if one.stored and is_of(TASK, one.subject)]
    models = {
        task.model.digest: task.model.inline
        for task in (Task.decode(one.data) for one in asked)
        if task.model is not None and task.model.inline is not None
    }
    assert models or name in WITHOUT, name
    for model in models.values():
        assert own_header(len(model), lambda at, length, model=model: model[at : at + length]) is None


WITHOUT = ("run-failed", "run-sharded")
"""They sent none, or larger ones by the store."""
