"""What a compensator remembers of the sets that it has answered is of the same set in every release."""

from __future__ import annotations

import pytest

from hanse_compensator.memory import members_digest
from hanse_fabric.messages import MaskRecord, MaskRequest
from hanse_fabric.messages.masking import SealedSeed
from hanse_fabric.subjects import MASK_RECORDS, MASK_REQUEST
from releases.recording import recordings, run_recording
from releases.story import Story, is_of

RELEASE = "0.1.0"
MASKED = [name for name in recordings(RELEASE, "run-") if "compensator" in name or "noise" in name]


@pytest.mark.parametrize("name", [name for name in MASKED if name != "run-local-noise"])
def test_the_sets_that_0_1_0_answered_are_known_again(name: str) -> None:
    said = [one for one in Story(run_recording(RELEASE, name)).said if one.stored]
    asked = {members_digest(MaskRequest.decode(one.data)) for one in said if is_of(MASK_REQUEST, one.subject)}
    answered = {MaskRecord.decode(one.data).members for one in said if is_of(MASK_RECORDS, one.subject)}
    assert answered
    assert answered <= asked


def test_a_field_that_a_later_release_adds_makes_no_other_set_of_one_without_it() -> None:
    class Later(SealedSeed):
        added: str | None = None

    said = [one for one in Story(run_recording(RELEASE, "run-compensator")).said if is_of(MASK_REQUEST, one.subject)]
    request = MaskRequest.decode(said[0].data)
    members = tuple(Later.model_construct(**dict(member)) for member in request.members)
    later = request.model_copy(update={"members": members})
    assert members_digest(later) == members_digest(request)
    told = request.model_copy(update={"members": tuple(each.model_copy(update={"added": "x"}) for each in members)})
    assert members_digest(told) != members_digest(request)
