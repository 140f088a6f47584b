"""A hub that lies to sites that crash, lose their journals, or are restored from a copy: with their true memory."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from hanse_datapod.home.place import require_place
from hanse_datapod.home.works import FILE, MaskedWork, Works
from hanse_datapod.worker.port import DataState
from hanse_fabric.errors import HanseError
from hanse_privacy.works.pairwise import Past, UnmaskingSession
from lying_pairwise_hub import SITES, LyingHub, allowed

WORKS, TAG, COPY = (b"w" * 32, b"v" * 32), b"t" * 16, "copy"
"""Two works of which every answer is near to every other."""
MEMORY = Path("/dev/shm")  # noqa: S108 - each change is synced, which takes a disk long


class Datapod:
    """A site with a home. Its answer differs each time that it is made: a trainer's last bits do."""

    def __init__(self, home: Path) -> None:
        self.home, self.made, self.left = home, 0, {}
        self.stopped = False
        home.mkdir()
        self.start()

    def start(self) -> None:
        require_place(self.home)
        self.works = Works(self.home)

    def share(self, number, opened):
        if self.stopped:
            return False
        if opened.ahead:
            return True
        return self.works.share(WORKS[number % 2], opened)

    def asked(self, number):
        return MaskedWork("run", f"s{number}", WORKS[number % 2], b"r" * 32, "triage", b"", b"c" * 32)

    def begin(self, number, order):
        if self.stopped or order.ahead:
            return False
        return self.works.begin(self.asked(number), DataState(), order, tag=TAG)

    def answer(self, number, order, *, dies=False):
        if self.stopped:
            return False
        asked = self.asked(number)
        self.made += 1
        answer = self.made.to_bytes(32, "big")
        self.works.claim(asked, answer, DataState(), tag=TAG, among=order)
        if dies:
            self.start()
            return False
        self.works.fix_answer(asked, answer)
        self.left.setdefault(number, set()).add(answer)
        return True

    def reveal(self, number, order, survivors):
        if self.stopped:
            return False
        return self.works.reveal("run", f"s{number}", order, survivors)

    def restore(self):
        """Lay back the copy of its memory: it notices at its next start, and waits for its administrator."""
        for file in self.home.glob(f"{FILE}*"):
            file.unlink()
        for file in self.home.glob(f"{COPY}*"):
            file.replace(self.home / file.name.replace(COPY, FILE))
        with pytest.raises(HanseError, match="was copied, moved or restored"):
            self.start()
        self.stopped = True


class LyingHubOfDatapods(LyingHub):
    """The same, with datapods that die at the worst moments."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def site(self, number):
        return Datapod(self.folder / str(number))

    def ordered(self, data):
        """A session in which secrets were shared, with its members, and one of them."""
        number = data.draw(st.sampled_from(sorted(self.orders)))
        return number, self.order(number), data.draw(st.sampled_from(sorted(self.orders[number])))

    @rule(data=st.data(), mishap=st.sampled_from(["dies", "loses its journal", "restarts", "is copied", "is restored"]))
    def mishap(self, data, mishap):
        if mishap in ("dies", "loses its journal") and self.orders:
            number, order, name = self.ordered(data)
            site, left = self.sites[name], number in self.sites[name].left
            answered = allowed(lambda: site.answer(number, order, dies=mishap == "dies"))
            assert not (answered and left), "an answer that left was made again"
            return
        site = self.sites[data.draw(st.sampled_from(list(SITES)))]
        if mishap == "is copied":
            for file in (*site.home.glob(f"{COPY}*"), *site.home.glob(f"{FILE}*")):
                if file.name.startswith(COPY):
                    file.unlink()
                else:
                    shutil.copy(file, site.home / file.name.replace(FILE, COPY))
        elif mishap == "is restored" and (site.home / COPY).exists() and not site.stopped:
            site.restore()
        elif not site.stopped:
            site.start()

    @invariant()
    def one_answer_of_each_session_has_left(self):
        left = [answers for site in getattr(self, "sites", {}).values() for answers in site.left.values()]
        assert all(len(answers) == 1 for answers in left)


LyingHubOfDatapods.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestALyingHubOfDatapods = LyingHubOfDatapods.TestCase


@pytest.fixture
def hub():
    made = LyingHubOfDatapods()
    made.begin(0)
    yield made
    made.teardown()


@pytest.mark.parametrize("within", [False, True])
def test_few_of_those_who_answered_do_not_go_on_with_a_near_work(hub, within):
    hub.has_three_of_seven_go_on(within=within)
    assert list(hub.sums()) == [{1, 2, 3, 4}]


@pytest.mark.parametrize("within", [False, True])
def test_control_without_the_check_few_of_those_who_answered_tell_one_more_members_part(hub, within, monkeypatch):
    for name in ("check", "check_near"):
        monkeypatch.setattr(Past, name, lambda *_: None)
    hub.has_three_of_seven_go_on(within=within)
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()


def test_who_shares_for_a_near_work_and_does_not_answer_leaves_no_sum_alive_beside_it(hub):
    hub.has_three_answer_where_four_shared()
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


def test_control_where_who_shares_counts_as_who_answers_the_sums_tell_the_fourths_part(hub, monkeypatch):
    monkeypatch.setattr(UnmaskingSession, "sure", property(lambda among: len(among.members)))
    hub.has_three_answer_where_four_shared()
    assert sorted(map(len, hub.sums())) == [3, 4]
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()


def test_a_session_that_few_answer_for_show_leaves_no_sum_alive_beside_the_next(hub):
    hub.has_three_answer_for_show()
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


def test_control_sites_that_hold_against_their_last_answer_alone_tell_the_fourths_part(hub, monkeypatch):
    monkeypatch.setattr(Past, "after_answer", lambda past, session: replace(past, answered=(session,)))
    hub.has_three_answer_for_show()
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()
