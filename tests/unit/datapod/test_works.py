"""A site remembers what it answered in masked sums, in a file that outlives journals."""

import base64
import stat

import numpy as np
import pytest

from hanse_datapod.home import tags as tags_of_home
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import FILE, MaskedWork, Works, near_before
from hanse_datapod.masking.remembered import grids_of
from hanse_datapod.worker.port import DataState
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Ring
from hanse_fabric.tensors.file import layout_like, write_tensors
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.works.near import sketch as sketch_of
from hanse_privacy.works.pairwise import UnmaskingSession
from hanse_privacy.works.people import sketch
from hanse_schemas.secure_aggregation import SecureAggregation
from spans import members

ANSWER, OTHER = b"a" * 32, b"o" * 32
PEOPLE = [f"person {number}".encode() for number in range(200)]


def asked(
    session="s1", *, work=b"w" * 32, request=b"r" * 32, project="triage", compensator=b"key", cut=b"c" * 32, grid=()
):
    return MaskedWork("run", session, work, request, project, compensator, cut, bytes(grid))


def state(people=PEOPLE):
    return DataState(str(hash(tuple(people))), base64.b64encode(sketch(people)).decode())


def among(numbers, threshold=9):
    return UnmaskingSession(members(*numbers), threshold, 3)


def code(act, *arguments, **named):
    with pytest.raises(HanseError) as caught:
        act(*arguments, **named)
    return caught.value.code


def near_answers(works, given, tag, since=0.0):
    return works._database.do(lambda database: near_before(database, given, tag, since))


@pytest.fixture
def works(tmp_path):
    return Works(tmp_path)


def test_an_answer_that_left_is_never_made_again_whatever_was_restarted(works, tmp_path):
    works.claim(asked(), ANSWER, state())
    works.check(asked())  # it has not left: a crash came between
    works.claim(asked(), OTHER, state())
    works.fix_answer(asked(), OTHER)
    works.fix_answer(asked(), OTHER)
    works = Works(tmp_path)
    assert code(works.check, asked()) is ErrorCode.GONE
    assert code(works.claim, asked(), ANSWER, state()) is ErrorCode.GONE
    assert code(works.fix_answer, asked(), ANSWER) is ErrorCode.GONE
    works.fix_answer(asked(), OTHER)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_session_serves_one_request(works):
    works.claim(asked(), ANSWER, state())
    assert code(works.check, asked(request=b"x" * 32)) is ErrorCode.CONFLICT
    works.check(asked("s2", request=b"x" * 32))


def test_a_work_belongs_to_one_project_and_one_compensator(works):
    works.claim(asked(), ANSWER, state())
    assert code(works.check, asked("s2", project="other")) is ErrorCode.CONFLICT
    assert code(works.check, asked("s2", compensator=b"")) is ErrorCode.CONFLICT
    works.check(asked("s2", work=b"v" * 32, project="other"))


@pytest.mark.parametrize(("people", "refused"), [
    (PEOPLE[1:], True), ([*PEOPLE[:-1], b"changed"], True), (PEOPLE[9:], True), (PEOPLE[10:], False), ([], False),
])  # fmt: skip
def test_a_work_is_not_done_again_on_data_that_differ_by_few_people(works, people, refused):
    works.claim(asked(), ANSWER, state())
    if refused:
        assert code(works.check_people, b"w" * 32, state(people)) is ErrorCode.POLICY
    else:
        works.check_people(b"w" * 32, state(people))
        works.claim(asked("s2"), ANSWER, state(people))
        # Back to a few of the first state: that counts, too.
        assert code(works.check_people, b"w" * 32, state([*PEOPLE, b"new"])) is ErrorCode.POLICY
    works.check_people(b"v" * 32, state(people))


def test_an_administrator_may_let_few_people_differ(tmp_path):
    works = Works(tmp_path, few=0)
    works.claim(asked(), ANSWER, state())
    works.check_people(b"w" * 32, state(PEOPLE[1:]))


def test_studies_of_people_who_differ_by_few_are_refused_whatever_they_ask(works):
    def study(number, ids):
        return DataState(str(number), "", base64.b64encode(sketch(ids)).decode())

    works.claim(asked(), ANSWER, study(1, PEOPLE))
    assert code(works.check_people, b"v" * 32, study(2, PEOPLE[3:]), 10) is ErrorCode.POLICY
    works.check_people(b"v" * 32, study(2, PEOPLE), 10)
    works.check_people(b"v" * 32, study(2, PEOPLE[10:]), 10)
    works.check_people(b"v" * 32, study(2, PEOPLE[3:]), 0)


def test_a_work_is_not_cut_to_other_limits_whatever_was_restarted(tmp_path):
    works, tag = Works(tmp_path), b"t" * 16
    works.claim(asked(), ANSWER, state(), near=tag)
    works = Works(tmp_path)
    works.check(asked("s2"))
    assert code(works.check, asked("s2", cut=OTHER)) is ErrorCode.POLICY
    assert code(works.claim, asked("s2", cut=OTHER), ANSWER, state()) is ErrorCode.POLICY
    moved = asked("s2", work=b"v" * 32, cut=OTHER)
    works.check(moved)
    assert code(near_answers, works, moved, tag) is ErrorCode.POLICY
    assert code(works.claim, moved, ANSWER, state(), near=tag) is ErrorCode.POLICY
    works.claim(moved, ANSWER, state(), near=b"n" * 16)


FITS = ((24, True), (27, True), (21, True), (28, False), (40, False), (20, False), (0, False))


@pytest.mark.parametrize("place", [0, 1], ids=["default ring", "ring of its own"])
def test_a_work_is_not_rounded_to_a_much_coarser_or_finer_grid(tmp_path, place):
    def grid(fraction):
        return [24, fraction] if place else [fraction, 24]

    works, tag = Works(tmp_path), b"t" * 16
    works.claim(asked(grid=(24, 24)), ANSWER, state(), near=tag)
    for fraction, fits in FITS:
        same, near = asked("s2", grid=grid(fraction)), asked("s2", work=b"v" * 32, grid=grid(fraction))
        if fits:
            works.check(same)
            near_answers(works, near, tag)
        else:
            assert code(works.check, same) is ErrorCode.POLICY, fraction
            assert code(near_answers, works, near, tag) is ErrorCode.POLICY, fraction
    works.claim(asked("s3", work=b"u" * 32, grid=(40,)), ANSWER, state())
    works.check(asked("s4", work=b"u" * 32, grid=(30,)))  # of a packed ring


def test_what_an_earlier_release_kept_of_a_cut_has_no_grid(tmp_path):
    works = Works(tmp_path)
    works.claim(asked(), ANSWER, state())
    works.check(asked("s2", grid=(3, 40)))
    assert code(works.check, asked("s2", cut=OTHER)) is ErrorCode.POLICY


def test_all_rings_of_a_plan_have_their_grids():
    plan = make_plan(SecureAggregation(mode="compensator"), participants=5, weighting="uniform")
    own = plan.model_copy(update={"entries": plan.entries | {"weight": Ring(bits=64, fraction=3, bound=8.0)}})
    assert grids_of(plan)[0] == plan.default.fraction
    assert sorted(grids_of(own)) == sorted([*grids_of(plan), 3])


@pytest.mark.parametrize("length", [1.0, 1e-60, 1e60])
def test_an_answer_is_near_to_an_earlier_one_whatever_its_length(tmp_path, length):
    arrays = {"weight": np.linspace(-1, 2, 500)}
    tags = Tags(tmp_path)
    write_tensors(tmp_path / "one", layout_like(arrays), arrays)
    scaled = {"weight": arrays["weight"] * length}
    write_tensors(tmp_path / "other", layout_like(scaled), scaled)
    tag, again = tags.of(tmp_path / "other", 0.02)
    assert not again
    assert Tags(tmp_path).of(tmp_path / "one", 1e-6) == (tag, True)


def test_what_an_earlier_release_kept_of_an_answer_is_read(tmp_path):
    arrays = {"weight": np.linspace(-1, 2, 500)}
    write_tensors(tmp_path / "one", layout_like(arrays), arrays)
    tags = Tags(tmp_path)
    tag, _ = tags.of(tmp_path / "one", 0.02)
    earlier = sketch_of(tmp_path / "one", tags._kept("secret", 32)).tobytes()
    tags._database.do(lambda database: database.execute("UPDATE sketches SET numbers = ?", (earlier,)))
    assert Tags(tmp_path).of(tmp_path / "one", 1e-6) == (tag, True)


def updates(folder, count):
    """Files of updates that are not near to each other."""
    for number in range(count):
        arrays = {"weight": np.random.default_rng(number).normal(size=50)}
        write_tensors(folder / f"update-{number}", layout_like(arrays), arrays)
    return [folder / f"update-{number}" for number in range(count)]


def test_no_answer_of_a_week_is_forgotten_and_no_more_are_made_than_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tags_of_home, "KEPT", 4)
    files, tags, other = updates(tmp_path, 7), Tags(tmp_path), Tags(tmp_path)  # two processes share the folder
    given = [tags.of(file, 0.02, at=100.0)[0] for file in files[:4]]
    assert code(other.of, files[4], 0.02, at=200.0) is ErrorCode.POLICY
    assert code(tags.of, files[0], 0.02, at=200.0) is ErrorCode.POLICY, "nor may it ask for what is known again"
    later = 101.0 + tags_of_home.WEEK_S
    assert other.of(files[3], 0.02, at=later) == (given[3], True)
    assert [tags.of(file, 0.02, at=later)[1] for file in files[4:6]] == [False, False]
    assert other.of(files[3], 0.02, at=later) == (given[3], True), "the oldest are forgotten, and this one came again"
    assert code(tags.of, files[0], 0.02, at=later) is ErrorCode.POLICY
    assert other.of(files[0], 0.02, at=2 * later)[1] is False, "of a week ago, and older than what is kept"


def test_nothing_is_kept_of_an_answer_that_may_not_be_near(tmp_path):
    [file], tags = updates(tmp_path, 1), Tags(tmp_path)
    tag, _ = tags.of(file, 0.02)

    def let(_database, near):
        raise HanseError(ErrorCode.POLICY, near.hex())

    for _ in range(3):
        assert code(tags.of, file, 0.02, let=let) is ErrorCode.POLICY
    assert tags.of(file, 0.02) == (tag, True)
    assert tags._database.do(lambda database: database.execute("SELECT count(*) FROM sketches").fetchone()) == (2,)


def test_with_pairwise_masks_the_sets_of_a_work_are_those_of_before(works, tmp_path):
    whole = among(range(1, 13))
    works.claim(asked(), ANSWER, state(), among=whole)
    assert code(works.reveal, "run", "s1", whole, whole.members) is ErrorCode.GONE  # nothing has left
    works.fix_answer(asked(), ANSWER)
    works.reveal("run", "s1", whole, whole.members)
    works.reveal("run", "s1", whole, whole.members)
    assert code(works.reveal, "run", "s1", whole, members(*range(1, 12))) is ErrorCode.CONFLICT
    works = Works(tmp_path)
    assert code(works.claim, asked("s2"), ANSWER, state(), among=among(range(1, 12))) is ErrorCode.CONFLICT
    works.claim(asked("s2"), ANSWER, state(), among=whole)
    works.fix_answer(asked("s2"), ANSWER)
    assert code(works.reveal, "run", "s2", whole, members(*range(1, 12))) is ErrorCode.CONFLICT
    works.claim(asked("s3", work=b"v" * 32), ANSWER, state(), among=among(range(1, 12)))


def test_a_sum_is_not_unmasked_once_its_work_went_on_in_another_session_of_whichever_run(works):
    whole = among(range(1, 13))
    works.claim(asked(), ANSWER, state(), among=whole)
    works.fix_answer(asked(), ANSWER)
    assert code(works.share, b"w" * 32, among(range(1, 5), 3)) is ErrorCode.CONFLICT
    works.share(b"v" * 32, among(range(1, 5), 3))
    works.share(b"w" * 32, among(range(1, 5), 4))
    assert code(works.reveal, "run", "s1", whole, whole.members) is ErrorCode.GONE


def test_sums_that_need_no_unmasking_are_unmasked_when_they_begin(works):
    whole = among(range(1, 13))
    works.begin(asked(), DataState(), whole)
    works.begin(asked(), DataState(), whole)
    assert code(works.begin, asked("s2"), DataState(), among(range(1, 12))) is ErrorCode.CONFLICT
    works.begin(asked("s2", work=b"v" * 32), DataState(), among(range(1, 12)))
    works.begin(asked("s3"), DataState(), whole)
    works.claim(asked("s3"), ANSWER, DataState(), among=whole)
    works.fix_answer(asked("s3"), ANSWER)


def test_sums_that_are_begun_again_are_held_against_the_data_that_they_were_made_of(works):
    whole = among(range(1, 13))
    for _ in range(2):
        works.begin(asked(), DataState(), whole)
        works.found(asked(), state())
    works.begin(asked(), DataState(), whole)
    assert code(works.found, asked(), state(PEOPLE[:-1])) is ErrorCode.POLICY
    works.begin(asked("s2"), DataState(), whole)
    assert code(works.found, asked("s2"), state(PEOPLE[:-1])) is ErrorCode.POLICY
    works.found(asked("s2"), state(PEOPLE[:150]))


def test_answers_with_one_tag_are_as_of_one_work(works):
    works.claim(asked(), ANSWER, state(), tag=b"t" * 16, among=among(range(1, 13)))
    near = asked("s2", work=b"v" * 32)
    assert code(works.claim, near, ANSWER, state(), tag=b"t" * 16, among=among(range(1, 4), 3)) is ErrorCode.CONFLICT
    works.claim(near, ANSWER, state(), tag=b"u" * 16, among=among(range(1, 4), 3))


def test_near_answers_among_the_same_members_are_unmasked_side_by_side_for_the_same_survivors(works):
    whole, chunks = among(range(1, 13)), [asked(), asked("s2", work=b"v" * 32), asked("s3", work=b"u" * 32)]
    for chunk in chunks:
        works.claim(chunk, ANSWER, state(), tag=b"t" * 16, among=whole)
        works.fix_answer(chunk, ANSWER)
    works.reveal("run", "s2", whole, whole.members)
    assert code(works.reveal, "run", "s1", whole, members(*range(1, 12))) is ErrorCode.CONFLICT
    works.reveal("run", "s1", whole, whole.members)
    again = asked("s4", work=b"x" * 32)
    works.claim(again, ANSWER, state(), tag=b"t" * 16, among=among(range(1, 13), 12))
    assert code(works.reveal, "run", "s3", whole, whole.members) is ErrorCode.GONE


def test_similar_answers_are_counted_since_a_time(works):
    for number in range(3):
        works.claim(asked(f"s{number}"), ANSWER, state(), tag=b"t" * 16, at=100.0 * number)
    assert [near_answers(works, asked("s9"), b"t" * 16, since) for since in (0.0, 100.0, 201.0)] == [3, 2, 0]


def test_beyond_the_limit_the_oldest_works_are_forgotten_and_refused(tmp_path):
    works = Works(tmp_path, limit=160 << 10)
    numbers = [number.to_bytes(32, "big") for number in range(300)]
    for number in numbers:
        works.claim(asked(number.hex(), work=number), ANSWER, DataState("0"), among=among(range(1, 13)))
    assert code(works.check, asked("again", work=numbers[0])) is ErrorCode.GONE
    works.check(asked("again", work=numbers[-1]))


@pytest.mark.parametrize("fixed", [False, True])
def test_what_is_near_to_a_forgotten_work_is_refused_unless_its_tag_is_of_all_answers(tmp_path, fixed):
    tag = Tags(tmp_path).fixed() if fixed else b"t" * 16
    works, whole = Works(tmp_path, limit=192 << 10), among(range(1, 13))
    works.claim(asked("first"), ANSWER, DataState("0"), tag=tag, among=whole)
    for number in range(300):
        given = asked(str(number), work=number.to_bytes(32, "big"))
        works.claim(given, ANSWER, DataState("0"), tag=tag if fixed else b"", among=whole)
    assert code(works.check, asked("again")) is ErrorCode.GONE
    near = asked("near", work=b"n" * 32)
    if fixed:
        works.claim(near, ANSWER, DataState("0"), tag=tag, among=whole)
        few = asked("few", work=b"f" * 32)
        assert (
            code(works.claim, few, ANSWER, DataState("0"), tag=tag, among=among(range(1, 4), 3)) is ErrorCode.CONFLICT
        )
    else:
        assert code(works.claim, near, ANSWER, DataState("0"), tag=tag, among=whole) is ErrorCode.CONFLICT


LASTING = [lambda home: Tags(home).fixed(), lambda home: Tags(home).of_sums("triage")]


@pytest.mark.parametrize("lasting", LASTING, ids=["fixed", "sums within a step"])
def test_with_whom_answers_were_whose_members_are_the_same_is_not_forgotten_for_others(tmp_path, lasting):
    tag, works, whole = lasting(tmp_path), Works(tmp_path, limit=192 << 10), among(range(1, 13))
    lasting(tmp_path)
    works.begin(asked("first"), DataState(), whole, tag=tag)
    works.found(asked("first"), state(), tag=tag)
    fill(works, whole)
    few, near = asked("few", work=b"f" * 32), asked("near", work=b"n" * 32)
    assert code(works.begin, few, DataState(), among(range(1, 12)), tag=tag) is ErrorCode.CONFLICT
    works.begin(near, DataState(), whole, tag=tag)
    assert code(works.found, near, state(PEOPLE[:-1]), tag=tag) is ErrorCode.POLICY
    works.claim(near, ANSWER, state(), tag=tag, among=whole)
    assert code(works.check, asked("again", work=bytes(31) + b"\1")) is ErrorCode.GONE  # of the others


def fill(works, whole, tag=b""):
    """Have a small memory forget its oldest works."""
    for number in range(300):
        works.claim(asked(str(number), work=number.to_bytes(32, "big")), ANSWER, DataState("0"), tag=tag, among=whole)


def test_all_sets_of_answers_whose_members_are_the_same_stay_each_once(tmp_path):
    """Of a set within the first, no smaller one comes after it, however much was forgotten since."""
    tag, works = Tags(tmp_path).fixed(), Works(tmp_path, limit=192 << 10)
    whole, within = among(range(1, 13), 12), among(range(1, 10), 8)
    for number in range(300):
        members = whole if number < 100 else within
        given = asked(str(number), work=number.to_bytes(32, "big"))
        works.claim(given, ANSWER, DataState("0"), tag=tag, among=members)
        works.fix_answer(given, ANSWER)
        works.reveal("run", str(number), members, members.members)
    assert code(works.check, asked("again", work=bytes(32))) is ErrorCode.GONE
    [kept] = works._database.do(lambda open_: open_.execute("SELECT count(*) FROM answers").fetchall())
    assert kept[0] < 290
    past = works.past(b"n" * 32, tag)
    assert (past.revealed, past.changed) == (within.members, True)
    for members in (whole, among(range(1, 8), 7)):
        given = asked("next", work=b"n" * 32)
        assert code(works.claim, given, ANSWER, DataState("0"), tag=tag, among=members) is ErrorCode.CONFLICT
    works.claim(asked("next", work=b"n" * 32), ANSWER, DataState("0"), tag=tag, among=within)


def test_a_tag_of_sums_that_was_renewed_is_forgotten_as_all_others_are(tmp_path):
    tags, works, whole = Tags(tmp_path), Works(tmp_path, limit=192 << 10), among(range(1, 13))
    old = tags.of_sums("triage")
    works.begin(asked("first"), DataState("0"), whole, tag=old)
    tags.renew()
    assert tags.of_sums("triage") != old
    assert tags.of_sums("triage") == Tags(tmp_path).of_sums("triage")
    assert tags.of_sums("triage") != tags.of_sums("other")
    fill(works, whole)
    assert works._database.do(lambda open_: open_.execute("SELECT tag FROM forgotten").fetchall()) == [(old,)]


def test_the_memory_counts_all_that_it_remembers(tmp_path):
    told = []
    works, whole = Works(tmp_path, reached=told.append), among(range(1, 13))
    works.begin(asked(), DataState(), whole)
    works.found(asked(), state())
    works.claim(asked(), ANSWER, state(), among=whole)
    works.fix_answer(asked(), ANSWER)
    works.share(b"w" * 32, whole)
    works.claim(asked("s2"), ANSWER, state(), among=whole)
    works.fix_answer(asked("s2"), ANSWER)
    works.reveal("run", "s2", whole, whole.members)
    assert len(told) == 8
    assert told == sorted(told)
    assert len(set(told)) >= 7, "to share again changes nothing"
    works.fix_answer(asked("s2"), ANSWER)
    assert told[-1] == told[-2]


def test_a_memory_that_is_full_of_works_stops_masked_answers(tmp_path):
    works = Works(tmp_path, limit=1)
    assert code(works.claim, asked(), ANSWER, DataState("0")) is ErrorCode.NO_SPACE
