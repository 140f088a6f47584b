"""One sum with noise, played by the protocol's own objects, with what each party saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_privacy.attacks.coalition import Bools, Coalition, Received, ShufflerView, SiteView
from hanse_privacy.noise.exact import discrete_laplace
from hanse_privacy.noise.oblivious import Elements, Receiver, Sender, Shuffler, Tuples, total, upload
from hanse_privacy.noise.oblivious_plan import Attempts, ObliviousPlan
from hanse_privacy.noise.source import NoiseSource

Encoded = Mapping[str, Elements]


@dataclass(frozen=True, slots=True)
class Played:
    """All views of one sum; `coalition` hands out those of a coalition's members.

    Attributes:
        coins_of: by receiver, then sender: for the negative control, in which the victim's coins are published.
    """

    views: Mapping[str, SiteView]
    total: Elements
    shuffler: ShufflerView | None = None

    def coalition(self, victim: str, *, with_shuffler: bool = False) -> Coalition:
        """All but the victim."""
        sites = tuple(view for name, view in self.views.items() if name != victim)
        return Coalition(sites, self.total, self.shuffler if with_shuffler else None)

    def received(self, receiver: str) -> Mapping[str, Received]:
        """What one receiver was given and what it chose."""
        return self.views[receiver].received


def play_local(encoded: Encoded, steps: int, source: NoiseSource) -> Played:
    """`local-laplace`: every site adds a whole Laplace variable that it knows."""
    views = {
        name: SiteView(name, values, discrete_laplace(steps, values.size, source).view(np.uint64))
        for name, values in encoded.items()
    }
    return Played(views, total(view.encoded + view.own for view in views.values()))


def send_all(plan: ObliviousPlan, source: NoiseSource) -> dict[str, Sender]:
    """Every participant's sender, with fresh noise."""
    return {name: Sender(plan, name, source, Attempts()) for name in plan.participants}


def play_oblivious(
    plan: ObliviousPlan, encoded: Encoded, source: NoiseSource, senders: Mapping[str, Sender] | None = None
) -> Played:
    """`oblivious`: the receivers choose.

    Args:
        senders: with noise that was used before: for the experiment that shows why it must not be.
    """
    senders = senders or send_all(plan, source)
    sent = {name: sender.tuples() for name, sender in senders.items()}
    views, uploads = {}, []
    for name, values in encoded.items():
        receiver, got = Receiver(plan, name, source), {}
        for sender in plan.senders(name):
            first, second = _row(sent[sender], name)
            receiver.take(sent[sender].session, sender, first, second)
            got[sender] = Received(first, second, receiver.coins[sender])
        views[name] = _view(name, values, senders[name], got)
        uploads.append(upload(values, senders[name], receiver.chosen()))
    return Played(views, total(uploads))


def play_shuffled(plan: ObliviousPlan, encoded: Encoded, source: NoiseSource) -> Played:
    """`oblivious-shuffled`: the shuffler chooses."""
    senders, shuffler = send_all(plan, source), Shuffler(plan, source)
    sent: dict[str, Tuples] = {}
    coins: dict[str, Bools] = {}
    for name, sender in senders.items():
        sent[name] = sender.tuples()
        shuffler.take(sent[name])
        coins[name] = shuffler.coins[name]
    views = {name: _view(name, values, senders[name], {}) for name, values in encoded.items()}
    uploads = [upload(values, senders[name], shuffler.relay(name).values) for name, values in encoded.items()]
    return Played(views, total(uploads, shuffler.compensation()), ShufflerView(sent, coins))


def _row(tuples: Tuples, receiver: str) -> tuple[Elements, Elements]:
    row = tuples.receivers.index(receiver)
    return tuples.first[row], tuples.second[row]


def _view(name: str, encoded: Elements, sender: Sender, received: Mapping[str, Received]) -> SiteView:
    return SiteView(name, encoded, sender.own, sender.receivers, sender.noise, sender.masks, received)
