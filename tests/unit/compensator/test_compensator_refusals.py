"""What the compensator refuses, and that a refusal shows no secret."""

import asyncio
import logging
import secrets

import pytest

from hanse_compensator.members import SetLimits
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.errors import ErrorCode
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import MaskAnswer, MaskShape
from hanse_fabric.subjects import MASK_RECORDS, MASK_REQUEST, MASKS
from hanse_privacy.masks.seal import roster_digest
from masked_sites import MaskedSite, mask_request, masked_sites


async def _refused(triage, request, code, *words, refused=(), **options):
    """The request is refused with this code, reason and members, and nothing was summed."""
    async with triage.running(**options):
        answer = await triage.ask(request)
    assert (answer.sum, answer.code, answer.refused) == (None, code.code, tuple(refused)), answer.reason
    for word in words:
        assert word in answer.reason
    assert await triage.bus.snapshot(MASKS.stream, MASKS.wildcard()) == []
    assert list(triage.store.keys("masks/")) == []
    return answer


async def test_a_set_smaller_than_the_compensators_own_minimum_is_refused(triage):
    await _refused(triage, triage.request(triage.sites[:2]), ErrorCode.QUORUM, "2", "fewer than 3")
    await _refused(triage, triage.request(), ErrorCode.QUORUM, "fewer than 5", limits=SetLimits(minimum=5))


async def test_a_set_smaller_than_a_members_minimum_is_refused(triage):
    members = [
        site.sealed(triage.key.public_bytes, minimum=5 if site.name == "site-002" else 3) for site in triage.sites
    ]
    await _refused(
        triage, mask_request("triage", members), ErrorCode.POLICY, "site-002", "at least 5", refused=["site-002"]
    )


async def test_a_set_above_the_compensators_limit_is_refused(triage):
    await _refused(triage, triage.request(), ErrorCode.TOO_LARGE, "at most 3", limits=SetLimits(members=3))


async def test_masks_above_the_compensators_limit_are_refused(triage, inline):
    request = triage.request(update=inline)
    await _refused(triage, request, ErrorCode.TOO_LARGE, f"{inline.nbytes} bytes", limits=SetLimits(nbytes=100))


async def test_members_out_of_order_or_twice_are_refused(triage):
    request = triage.request()
    for members in (request.members[::-1], (*request.members, request.members[-1])):
        await _refused(triage, mask_request("triage", members), ErrorCode.INVALID_INPUT, "sorted")


async def test_a_set_with_a_site_that_is_not_enrolled_is_refused(triage):
    stranger = MaskedSite("stranger", "triage")
    request = triage.request([*triage.sites, stranger])
    await _refused(triage, request, ErrorCode.FORBIDDEN, "stranger", "not enrolled", refused=["stranger"])


async def test_a_set_with_a_revoked_site_is_refused(triage):
    await triage.enrol(triage.sites[1], revoked=True)
    await _refused(triage, triage.request(), ErrorCode.FORBIDDEN, "revoked", refused=["site-001"])


async def test_a_set_with_a_site_of_another_project_is_refused(triage):
    other = MaskedSite("site-000", "other")
    request = triage.request([other, *triage.sites[1:]])
    await _refused(triage, request, ErrorCode.TAMPERED, "signature", refused=["site-000"])


async def test_a_set_with_a_seed_that_another_site_signed_is_refused(triage):
    request = triage.request()
    forged = request.members[2].model_copy(update={"signature": secrets.token_bytes(64)})
    members = (*request.members[:2], forged, *request.members[3:])
    await _refused(triage, mask_request("triage", members), ErrorCode.TAMPERED, "signature", refused=["site-002"])


@pytest.mark.parametrize("change", [{"tally": 4}, {"update": MaskShape(u32=7)}])
async def test_a_shape_that_the_member_did_not_sign_is_refused(triage, change):
    request = triage.request()
    changed = request.members[0].model_copy(update=change)
    members = (changed, *request.members[1:])
    await _refused(triage, mask_request("triage", members), ErrorCode.TAMPERED, "signature", refused=["site-000"])


async def test_a_set_with_masks_of_another_shape_is_refused(triage, inline):
    members = [
        site.sealed(triage.key.public_bytes, update=MaskShape(u32=5) if site.name == "site-003" else inline)
        for site in triage.sites
    ]
    request = mask_request("triage", members)
    await _refused(triage, request, ErrorCode.INVALID_INPUT, "site-003", "5 of 32 bits", refused=["site-003"])


@pytest.mark.parametrize("session", ["r2-train-1", "r1-train-2"])
async def test_a_seed_sealed_for_another_session_is_refused(triage, session):
    replayed = triage.request(session=session).members
    sites = [site.signed(member.sealed) for site, member in zip(triage.sites, replayed, strict=True)]
    everyone = [site.name for site in triage.sites]
    await _refused(triage, mask_request("triage", sites), ErrorCode.TAMPERED, "does not open", refused=everyone)


async def test_a_seed_sealed_to_another_key_is_refused(triage):
    other = SealingKey.create().public_bytes
    members = [site.sealed(other if site.name == "site-001" else triage.key.public_bytes) for site in triage.sites]
    request = mask_request("triage", members)
    await _refused(triage, request, ErrorCode.TAMPERED, "site-001", "does not open", refused=["site-001"])


@pytest.mark.parametrize("cut", [0, 1, 60, 116])
async def test_a_set_with_a_truncated_seed_is_refused(triage, cut):
    first = triage.sites[0]
    whole = first.sealed(triage.key.public_bytes).sealed
    members = (first.signed(whole[:cut]), *triage.request().members[1:])
    request = mask_request("triage", members)
    await _refused(triage, request, ErrorCode.TAMPERED, "does not open", refused=["site-000"])


async def test_a_member_cannot_send_another_members_seed_as_its_own(triage):
    request = triage.request()
    copied = triage.sites[1].signed(request.members[0].sealed)
    members = (request.members[0], copied, *request.members[2:])
    await _refused(triage, mask_request("triage", members), ErrorCode.TAMPERED, "site-001", refused=["site-001"])


async def test_a_set_with_one_key_under_two_names_is_refused(triage):
    twin = MaskedSite("twin", "triage", key=triage.sites[0].key)
    await triage.enrol(twin)
    request = triage.request([*triage.sites[:2], twin])
    await _refused(triage, request, ErrorCode.FORBIDDEN, "same key as site-000", refused=["twin"])


async def test_a_seed_that_pins_another_roster_than_the_projects_is_refused(triage):
    pinned = roster_digest([site.key.public_bytes for site in triage.sites])
    joined = MaskedSite("late", "triage")
    await triage.enrol(joined)
    members = [
        site.sealed(triage.key.public_bytes, roster=pinned if site.name == "site-000" else None)
        for site in triage.sites
    ]
    request = mask_request("triage", members)
    await _refused(triage, request, ErrorCode.POLICY, "site-000", "roster", refused=["site-000"])
    await triage.enrol(joined, revoked=True)
    async with triage.running():
        assert (await triage.ask(request)).sum is not None


async def test_all_members_at_fault_are_named_at_once(triage):
    await triage.enrol(triage.sites[0], revoked=True)
    request = triage.request()
    forged = request.members[3].model_copy(update={"signature": bytes(64)})
    members = (*request.members[:3], forged)
    await _refused(
        triage, mask_request("triage", members), ErrorCode.FORBIDDEN, "revoked", "signature",
        refused=["site-000", "site-003"],
    )  # fmt: skip


async def test_a_second_set_of_a_session_is_refused_and_the_first_is_answered_again(triage, inline):
    first = triage.request(triage.sites[:3], update=inline)
    second = mask_request("triage", triage.request(update=inline).members)
    async with triage.running():
        answer = await triage.ask(first)
        refusal = await triage.ask(second)
        assert (refusal.sum, refusal.code) == (None, ErrorCode.CONFLICT.code)
        assert "another set" in refusal.reason
        assert await triage.ask(first) == answer


async def test_other_seeds_of_the_same_set_are_refused(triage):
    async with triage.running():
        assert (await triage.ask(triage.request())).sum is not None
        for site in triage.sites:
            site.seed = secrets.token_bytes(32)
        refusal = await triage.ask(triage.request())
    assert refusal.code == ErrorCode.CONFLICT.code
    assert "other seeds" in refusal.reason


async def test_a_refused_set_does_not_use_up_the_session(triage):
    async with triage.running():
        assert (await triage.ask(triage.request(triage.sites[:2]))).code == ErrorCode.QUORUM.code
        assert (await triage.ask(triage.request(triage.sites[:3]))).sum is not None


class Overheard(MemoryBus):
    """A connection whose answers are noted: the stream keeps the last one only."""

    answers: asyncio.Queue[MaskAnswer]

    async def publish(self, subject, data, **options):
        sequence = await super().publish(subject, data, **options)
        if subject.startswith("hanse.v1.mask-answer."):
            self.answers.put_nowait(MaskAnswer.decode(data))
        return sequence


@pytest.mark.parametrize("session", [f"race-{index}" for index in range(5)])
async def test_two_compensator_replicas_asked_for_two_sets_answer_exactly_one(triage, inline, session):
    """Both requests are on the queue before either replica starts."""
    sets = (triage.sites[:3], triage.sites[1:])
    requests = [triage.request(sites, update=inline, session=session) for sites in sets]
    tokens = {"project": "triage", "run": requests[0].run, "session": session}
    for request in requests:
        await triage.bus.publish(MASK_REQUEST.of(**tokens), request.encode())
    Overheard.answers = asyncio.Queue()
    replicas = [Overheard(triage.bus.broker) for _ in range(2)]
    async with asyncio.timeout(60), triage.running(bus=replicas[0]), triage.running(bus=replicas[1]):
        answers = [await Overheard.answers.get() for _ in requests]
    assert sorted(answer.code for answer in answers) == ["", ErrorCode.CONFLICT.code]
    assert len(await triage.bus.snapshot(MASK_RECORDS.stream, MASK_RECORDS.of(**tokens))) == 1


async def test_no_refusal_or_log_line_shows_a_seed_or_a_key(triage, inline, caplog):
    caplog.set_level(logging.DEBUG)
    stranger = MaskedSite("stranger", "triage")
    requests = [
        triage.request(update=inline),
        triage.request(triage.sites[:2]),
        triage.request([*triage.sites, stranger], session="other"),
        triage.request(masked_sites("triage", 4), session="another"),
    ]
    async with triage.running():
        texts = [(await triage.ask(request)).reason for request in requests]
    texts += [record.getMessage() + str(record.__dict__) for record in caplog.records]
    secret = [site.seed for site in (*triage.sites, stranger)] + [triage.key.private_bytes]
    for text in texts:
        for value in secret:
            assert value.hex() not in text
            assert repr(value)[2:-1] not in text


async def test_a_defect_is_answered_without_its_message(triage, monkeypatch, caplog):
    import hanse_compensator.sums as sums

    def broken(opened, *args):
        raise ZeroDivisionError(opened.seeds[0].hex())

    monkeypatch.setattr(sums, "make_sums", broken)
    answer = await _refused(triage, triage.request(), ErrorCode.INTERNAL, "ZeroDivisionError")
    for site in triage.sites:
        assert site.seed.hex() not in answer.reason + caplog.text
