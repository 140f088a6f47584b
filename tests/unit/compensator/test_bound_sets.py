"""A set is summed where all have answered one request of one work; who has answered another is named."""

import pytest

from hanse_compensator.members import RefusedError, SetLimits, open_members
from hanse_compensator.openers import WithOneKey
from hanse_fabric.errors import ErrorCode
from hanse_fabric.identity.sealing import SealingKey
from hanse_privacy.masks.bound import Asked, bound_seed
from masked_sites import mask_request, masked_sites

KEY = SealingKey.create()
ASKED = Asked(request=b"R" * 32, work=b"W" * 32)
OTHER = Asked(request=b"r" * 32, work=b"W" * 32)
OTHER_WORK = Asked(request=b"R" * 32, work=b"w" * 32)
SITES = masked_sites("triage", 5)
ROSTER = {site.name: site.record() for site in SITES}


def opened(*asked, minimum=3):
    members = [
        site.sealed(KEY.public_bytes, asked=each, minimum=minimum) for site, each in zip(SITES, asked, strict=False)
    ]
    return open_members(mask_request("triage", members), ROSTER, WithOneKey(KEY), SetLimits())


def test_a_set_of_one_request_is_opened_with_its_work_and_the_largest_minimum():
    found = opened(*[ASKED] * 5, minimum=4)
    assert (found.work, found.gap, found.tags) == (ASKED.work, 4, ())
    assert found.seeds == tuple(bound_seed(site.seed, ASKED.request) for site in SITES)


def test_a_set_of_release_0_1_0_is_opened_with_the_seeds_as_they_are():
    found = opened(*[None] * 5)
    assert (found.work, found.seeds) == (None, tuple(site.seed for site in SITES))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ([OTHER, ASKED, ASKED, ASKED, ASKED], ["site-000"]),
        ([ASKED, ASKED, ASKED, OTHER, OTHER], ["site-003", "site-004"]),
        ([ASKED, ASKED, ASKED, OTHER_WORK, OTHER_WORK], ["site-003", "site-004"]),
        ([ASKED, ASKED, OTHER, OTHER_WORK, None], ["site-002", "site-003", "site-004"]),
        ([ASKED, ASKED, OTHER, OTHER], ["site-002", "site-003"]),
        ([None, ASKED, ASKED, ASKED, ASKED], ["site-000"]),
        ([None, None, None, ASKED], ["site-003"]),
    ],
)
def test_of_several_requests_those_of_the_smaller_parts_are_named(asked, named):
    with pytest.raises(RefusedError, match="answered another request than most others") as refused:
        opened(*asked)
    assert refused.value.code is ErrorCode.CONFLICT
    assert list(refused.value.participants) == named


def test_a_request_that_the_member_did_not_sign_is_refused():
    members = [site.sealed(KEY.public_bytes, asked=ASKED) for site in SITES]
    for request in (OTHER.request.hex(), None):
        changed = [*members[:4], members[4].model_copy(update={"request": request})]
        with pytest.raises(RefusedError) as refused:
            open_members(mask_request("triage", changed), ROSTER, WithOneKey(KEY), SetLimits())
        assert refused.value.participants == ("site-004",)
