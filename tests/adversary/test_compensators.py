"""The hub that lies, with some of several compensators: what it gets of one site's update, and what it cannot get.

Each attack is played against the real agents, and its control takes the one defence away.
"""

import base64
import itertools
import re
import shutil
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import hanse_compensator.shared_sums as agents_of_several
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Compensators, MaskStage
from hanse_fabric.subjects import MASKS, PARTICIPANTS
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.compensators.keys import check_group, digest_of
from hanse_privacy.compensators.shares import Sharing
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.seal import open_sealed
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.pairwise.streams import Masks
from masked_sites import RUN, SESSION, masked_sites
from shared_masks import ASKED, ask, asking, compensators, group_of, serving, shared

TALLY = 64


@dataclass
class Hub:
    """Everything that it carries and asks for; sites `a`, `b`, ... of project `triage`."""

    sites: list
    bus: MemoryBus = field(default_factory=lambda: MemoryBus(MemoryBroker()))

    async def enrol(self):
        for site in self.sites:
            subject = PARTICIPANTS.of(project="triage", participant=site.name)
            await self.bus.publish(subject, site.record().encode())

    async def ballots(self, given, group, places, session=SESSION):
        """(of those who vote, what the others say)."""
        cast, refused = [], []
        for place in places:
            request = asking(given, group, MaskStage.BALLOT, session=session)
            answer = await ask(self.bus, group.keys[place].owner, request)
            (cast if answer.ballot else refused).append(answer.ballot or answer)
        return cast, refused

    async def part(self, given, group, place, ballots, session=SESSION):
        """What one compensator sums: (the elements, why not)."""
        request = asking(given, group, MaskStage.SUM, ballots, session=session)
        answer = await ask(self.bus, group.keys[place].owner, request)
        if answer.sum is None:
            return None, answer
        subject = MASKS.of(project="triage", run=RUN, session=session, digest=answer.sum.tally.digest)
        return decode_tensors((await self.bus.last(MASKS.stream, subject)).data)[1]["u64"], answer


@pytest.fixture
async def hub():
    made = Hub(masked_sites("triage", 7))
    await made.enrol()
    return made


def masked(given, secret):
    """What a site sends: its numbers, masked."""
    elements = secret.copy()
    Masks(add=[bound_seed(seed, ASKED.request) for seed in given.seeds], subtract=()).apply_tally(elements, 0)
    return elements


@pytest.mark.parametrize(("needed", "count"), [(2, 3), (3, 4), (3, 5), (3, 3)])
@pytest.mark.control_inside
def test_a_hub_with_fewer_than_k_compensators_takes_no_mask_off(tmp_path, needed, count):
    members = compensators(tmp_path, count)
    group, secret = group_of(members, needed), np.arange(TALLY, dtype="<u8")
    given = shared(masked_sites("triage", 1)[0], group, tally=TALLY)
    seen = masked(given, secret)
    for places in itertools.combinations(range(count), needed - 1):
        assert not np.array_equal(taken_off(seen, given, group, members, places), secret)
    # The control: one more of them, and everything is read.
    for places in itertools.combinations(range(count), needed):
        assert np.array_equal(taken_off(seen, given, group, members, places), secret)


@pytest.mark.control_inside
def test_a_hub_that_calls_compensators_gone_takes_no_mask_off_either(tmp_path):
    members = compensators(tmp_path, 3)
    whole, secret = group_of(members, 2), np.arange(TALLY, dtype="<u8")
    pinned, now = [each.owner.public_bytes for each in members], SystemClock().now()
    for away in range(3):
        keys = tuple(key for place, key in enumerate(whole.keys) if place != away)
        group = Compensators(needed=2, keys=keys, gone=(base64.b64encode(pinned[away]),))
        check_group(group, pinned, 2, now)
        given = shared(masked_sites("triage", 1)[0], group, tally=TALLY)
        seen, present = masked(given, secret), [place for place in range(3) if place != away]
        for place in present:
            assert not np.array_equal(taken_off(seen, given, group, members, [place]), secret)
        # The control: both of those that are there read it.
        assert np.array_equal(taken_off(seen, given, group, members, present), secret)
    all_needed = Compensators(needed=3, keys=whole.keys[:2], gone=(base64.b64encode(pinned[2]),))
    with pytest.raises(HanseError, match="gone"):
        check_group(all_needed, pinned, 3, now)


def taken_off(seen, given, group, members, places):
    """A masked answer less all keystreams whose seeds these compensators can open."""
    sharing = Sharing(group.needed, len(members))
    known = {}
    for place in places:
        note = opened(members[place], group, given, place)
        known |= dict(zip(sharing.held_by(place), note.seeds, strict=True))
    left = seen.copy()
    for seed in known.values():
        MaskStream(bound_seed(seed, ASKED.request), Purpose.TALLY).subtract_from(left, 0)
    return left


def opened(member, group, given, place, now=None):
    return open_shared(member.keys.private(key_of(group, place), now or SystemClock().now()), group, given, place)


def key_of(group, place):
    (key,) = [each.key for each in group.keys if each.owner == group.owners[place]]
    return key


def open_shared(key, group, given, place):
    seal = [each.owner for each in group.keys].index(group.owners[place])
    return open_sealed(
        key, given.sealed.seals[seal], project="triage", run=RUN, session=SESSION, participant=given.site.name,
        request=ASKED.request, group=digest_of(group),
    )  # fmt: skip


async def two_sums(hub, group, everybody, without):
    """A set to some compensators, and the same without one site to the others: each seed's two holders are asked for
    different sums. Returns what the hub gets."""
    got, refused = {}, []
    first, _ = await hub.ballots(everybody, group, (0, 1))
    second, no = await hub.ballots(without, group, (1, 2))
    refused += no
    for given, ballots, places in ((everybody, first, (0, 1)), (without, second or first, (1, 2))):
        for place in places:
            part, answer = await hub.part(given, group, place, ballots)
            if part is None:
                refused.append(answer)
            else:
                got.setdefault(len(given), []).append(part)
    return got, refused


async def test_compensators_that_are_shown_different_sets_sum_no_second_one(hub, tmp_path):
    members = compensators(tmp_path, 3)
    group = group_of(members, 2)
    given = [shared(site, group, tally=TALLY) for site in hub.sites]
    async with serving([each.agent(hub.bus) for each in members]):
        got, refused = await two_sums(hub, group, given, given[1:])
    assert {size: len(parts) for size, parts in got.items()} == {7: 2}
    assert {answer.code for answer in refused} <= {"conflict", "quorum", "tampered"}
    assert len(refused) >= 3


@pytest.mark.control("test_compensators_that_are_shown_different_sets_sum_no_second_one")
async def test_control_without_ballots_the_difference_of_two_sets_is_one_sites_mask(hub, tmp_path, monkeypatch):
    def trusting(ballots, asked, group, members, gap):
        return tuple(sorted({key.owner: place for place, key in enumerate(group.keys)}[b.owner] for b in ballots))

    monkeypatch.setattr(agents_of_several, "check_ballots", trusting)
    members = compensators(tmp_path, 3)
    group, secret = group_of(members, 2), np.arange(TALLY, dtype="<u8")
    given = [shared(site, group, tally=TALLY) for site in hub.sites]
    everybody, without = given, given[1:]
    async with serving([each.agent(hub.bus) for each in members]):
        first, _ = await hub.ballots(everybody, group, (0, 1, 2))
        sums = {}
        for size, asked in ((7, everybody), (6, without)):
            voters = first[:2] if size == 7 else first[1:]
            places = (0, 1) if size == 7 else (1, 2)
            parts = [(await hub.part(asked, group, place, voters))[0] for place in places]
            sums[size] = sum(parts)
    seen = masked(given[0], secret)
    assert np.array_equal(seen - (sums[7] - sums[6]), secret)


def three_wrong_sets(sites):
    """Of which every two may be summed, and which leave site 7 alone together."""
    return sites, sites[:3], sites[3:6]


async def attempt(hub, group, sets):
    """Each of the sets, of one work, by another two of the three compensators: how many are summed, and what the last
    refusal says."""
    done, reason = 0, ""
    pairs = ((0, 1), (0, 2), (1, 2))
    for number, (sites, places) in enumerate(zip(sets, pairs, strict=True)):
        session = f"r{number + 1}-train-1"
        given = [shared(site, group, tally=TALLY, session=session) for site in sites]
        ballots, refused = await hub.ballots(given, group, places, session)
        parts = [await hub.part(given, group, place, ballots, session) for place in places] if not refused else []
        done += bool(parts) and all(part is not None for part, _ in parts)
        reason = next((answer.reason for _, answer in parts if answer.code), reason)
    return done, reason


async def test_three_sets_of_which_each_compensator_sees_two_are_not_all_summed(hub, tmp_path):
    members = compensators(tmp_path, 3)
    async with serving([each.agent(hub.bus) for each in members]):
        done, reason = await attempt(hub, group_of(members, 2), three_wrong_sets(hub.sites))
    assert done == 2
    assert "this work was summed over" in reason


@pytest.mark.control("test_three_sets_of_which_each_compensator_sees_two_are_not_all_summed")
async def test_control_where_ballots_are_counted_alone_three_sets_leave_one_site(hub, tmp_path, monkeypatch):
    from hanse_privacy.compensators import ballots

    monkeypatch.setattr(ballots, "_remembered", lambda _: {})
    members = compensators(tmp_path, 3)
    async with serving([each.agent(hub.bus) for each in members]):
        done, _ = await attempt(hub, group_of(members, 2), three_wrong_sets(hub.sites))
    assert done == 3


async def summed_in_a_circle(hub, tmp_path, orders):
    """How many of three sets that leave one site are summed, where each compensator is asked for the votes of two of
    them, in this order: in a circle, each set's ballots might tell of one other set and none of both."""
    members = compensators(tmp_path, 3)
    group, sets, pairs = group_of(members, 2), three_wrong_sets(hub.sites), ((0, 1), (1, 2), (2, 0))
    sessions = [f"r{number + 1}-train-1" for number in range(3)]
    given = [
        [shared(site, group, tally=TALLY, session=session) for site in sites]
        for sites, session in zip(sets, sessions, strict=True)
    ]
    ballots = [[], [], []]
    parts = 0
    async with serving([each.agent(hub.bus) for each in members]):
        for place, order in enumerate(orders):
            both = [number for number, pair in enumerate(pairs) if place in pair]
            for number in both[::-1] if order else both:
                cast, _ = await hub.ballots(given[number], group, (place,), sessions[number])
                ballots[number] += cast
        for number, pair in enumerate(pairs):
            asked = given[number], ballots[number], sessions[number]
            got = [await hub.part(asked[0], group, place, *asked[1:]) for place in pair]
            parts += any(part is not None for part, _ in got)
    return parts


@pytest.mark.parametrize("orders", list(itertools.product((0, 1), repeat=3)))
async def test_in_whatever_order_votes_are_asked_for_three_sets_that_leave_one_site_are_not_all_summed(
    hub, tmp_path, orders
):
    assert await summed_in_a_circle(hub, tmp_path, orders) < 3


@pytest.mark.parametrize("orders", [(0, 0, 0), (0, 0, 1)])
@pytest.mark.control("test_in_whatever_order_votes_are_asked_for_three_sets_that_leave_one_site_are_not_all_summed")
async def test_control_where_ballots_are_counted_alone_a_circle_leaves_one_site(hub, tmp_path, orders, monkeypatch):
    from hanse_privacy.compensators import ballots

    monkeypatch.setattr(ballots, "_remembered", lambda _: {})
    assert await summed_in_a_circle(hub, tmp_path, orders) == 3


@pytest.mark.control_inside
async def test_each_compensator_remembers_works_for_itself(hub, tmp_path):
    members = compensators(tmp_path, 3)
    group = group_of(members, 2)
    async with serving([each.agent(hub.bus) for each in members]):
        first = [shared(site, group, tally=TALLY) for site in hub.sites]
        ballots, _ = await hub.ballots(first, group, (0, 1))
        assert (await hub.part(first, group, 0, ballots))[0] is not None
        again = [shared(site, group, tally=TALLY, session="r2-train-1") for site in hub.sites[1:]]
        cast, refused = await hub.ballots(again, group, (0, 1), "r2-train-1")
    assert not cast
    assert {answer.code for answer in refused} == {"conflict"}
    # The control: those who have forgotten vote, and sum.
    for member in members:
        (member.home / "memory").unlink()
    async with serving([each.agent(hub.bus) for each in members]):
        cast, refused = await hub.ballots(again, group, (0, 1), "r2-train-1")
        assert not refused
        assert (await hub.part(again, group, 0, cast, "r2-train-1"))[0] is not None


def test_a_group_that_is_not_pinned_is_refused(tmp_path):
    members, stranger = compensators(tmp_path, 3), compensators(tmp_path / "other", 1)[0]
    now = SystemClock().now()
    pinned = [each.owner.public_bytes for each in members]
    check_group(group_of(members, 2), pinned, 2, now)
    for other, needed in (
        (sorted([*members[1:], stranger], key=lambda each: each.owner.public_bytes), 2),
        (members[:2], 2),
        (members, 3),
    ):
        with pytest.raises(HanseError, match="are pinned") as refused:
            check_group(group_of(other, needed), pinned, 2, now)
        assert refused.value.code is ErrorCode.POLICY


def test_a_sealing_key_of_the_hubs_own_is_refused(tmp_path):
    members = compensators(tmp_path, 3)
    group, hubs = group_of(members, 2), compensators(tmp_path / "hub", 1)[0]
    now = SystemClock().now()
    own = hubs.keys.present(now)
    keys = [key.model_copy(update={"key": own.key, "signature": own.signature}) for key in group.keys]
    with pytest.raises(HanseError, match="signature") as refused:
        check_group(
            group.model_copy(update={"keys": tuple(keys)}), [each.owner.public_bytes for each in members], 2, now
        )
    assert refused.value.code is ErrorCode.TAMPERED


def test_a_key_whose_time_is_over_is_not_sealed_to(tmp_path):
    members = compensators(tmp_path, 3)
    group, now = group_of(members, 2), SystemClock().now()
    pinned = [each.owner.public_bytes for each in members]
    with pytest.raises(HanseError, match="until") as refused:
        check_group(group, pinned, 2, now + timedelta(hours=25))
    assert refused.value.code is ErrorCode.GONE
    # A later end that the owner has not signed does not help.
    later = group.keys[0].model_copy(update={"until": now + timedelta(days=9)})
    with pytest.raises(HanseError, match="signature"):
        check_group(group.model_copy(update={"keys": (later, *group.keys[1:])}), pinned, 2, now)
    assert base64.b64encode(later.owner)


def strangers(members, hubs, now):
    """Compensators of the hub's own in place of all three."""
    return group_of(hubs, 2), [
        (place, hubs[place].keys.private(key_of(group_of(hubs, 2), place), now)) for place in (0, 1)
    ]


def own_sealing_keys(members, hubs, now):
    """The pinned compensators, with a key of the hub's that none of them has signed."""
    group, own = group_of(members, 2), hubs[0].keys.present(now)
    keys = tuple(key.model_copy(update={"key": own.key}) for key in group.keys)
    return group.model_copy(update={"keys": keys}), [(place, hubs[0].keys.private(own.key, now)) for place in (0, 1)]


def keys_over(members, hubs, now):
    """Keys whose time is over, which the hub has got hold of since."""
    group = group_of(members, 2)
    keys = tuple(key.model_copy(update={"until": now - timedelta(days=1)}) for key in group.keys)
    held = [(place, members[place].keys.private(key_of(group, place), now)) for place in (0, 1)]
    return group.model_copy(update={"keys": keys}), held


@pytest.mark.parametrize("announced", [strangers, own_sealing_keys, keys_over])
@pytest.mark.control(
    "test_a_group_that_is_not_pinned_is_refused",
    "test_a_sealing_key_of_the_hubs_own_is_refused",
    "test_a_key_whose_time_is_over_is_not_sealed_to",
)
def test_control_where_nobody_checks_the_group_whoever_has_its_keys_reads_every_answer(tmp_path, announced):
    members, hubs, now = compensators(tmp_path, 3), compensators(tmp_path / "hub", 3), SystemClock().now()
    group, keys = announced(members, hubs, now)
    with pytest.raises(HanseError):  # what a site would have said
        check_group(group, [each.owner.public_bytes for each in members], 2, now)
    given, secret = shared(masked_sites("triage", 1)[0], group, tally=TALLY), np.arange(TALLY, dtype="<u8")
    known = {}
    for place, key in keys:
        known |= dict(zip(Sharing(2, 3).held_by(place), open_shared(key, group, given, place).seeds, strict=True))
    left = masked(given, secret)
    for seed in known.values():
        MaskStream(bound_seed(seed, ASKED.request), Purpose.TALLY).subtract_from(left, 0)
    assert np.array_equal(left, secret)


@pytest.mark.control_inside
async def test_compensators_that_are_seized_after_their_keys_are_destroyed_open_nothing_recorded(hub, tmp_path):
    members = compensators(tmp_path, 3)
    group = group_of(members, 2)
    given = [shared(site, group, tally=TALLY) for site in hub.sites]
    async with serving([each.agent(hub.bus) for each in members]):
        ballots, _ = await hub.ballots(given, group, (0, 1))
        assert (await hub.part(given, group, 0, ballots))[0] is not None
    later = SystemClock().now() + timedelta(hours=49)
    for place, member in enumerate(members):
        member.owner.save(member.home / "identity")
        shutil.copytree(member.home, before := tmp_path / f"copy-{place}")
        assert member.keys.present(later).key != group.keys[place].key
        with pytest.raises(HanseError) as gone:
            opened(member, group, given[0], place, later)
        assert gone.value.code is ErrorCode.GONE
        assert not any(opens(key, group, given[0], place) for key in keys_in(member.home))
        # The control: of a home that was copied before, a key opens it.
        assert any(opens(key, group, given[0], place) for key in keys_in(before))


def keys_in(home):
    """Whatever may be a private key in a home: of every file what it holds as one, and runs of 32 bytes."""
    for path in (each for each in home.rglob("*") if each.is_file()):
        data = path.read_bytes()
        for pem in re.findall(rb"-----BEGIN PRIVATE KEY-----.*?-----END PRIVATE KEY-----", data, re.DOTALL):
            yield load_pem_private_key(pem, None).private_bytes_raw()
        runs = {data[at : at + 32] for at in range(len(data) - 31)}
        yield from (run for run in runs if len(set(run)) > 16)


def opens(key, group, given, place):
    try:
        return open_shared(key, group, given, place)
    except HanseError:
        return None
