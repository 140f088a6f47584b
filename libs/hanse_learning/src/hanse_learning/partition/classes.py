"""Label skew by classes: an exact number of classes per site, two majority classes, or classes dealt in rotation."""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.partition.shares import Labels, Partition, check_sites, shuffled


def exact_classes(
    labels: Labels, sites: int, *, classes_per_site: int, balance: float = 1.0, seed: int = 0
) -> Partition:
    """Each site has examples of exactly `classes_per_site` classes (the label skew of Nasirigerdeh et al., 2023).

    Every class is cut into sites * classes_per_site / classes shards; the shards are dealt such that no site gets two
    of one class.

    Args:
        labels: (n,) integers.
        balance: 1.0 for shards of equal size; below, sizes are drawn from a Dirichlet distribution with this
            concentration, at least one example each.

    Raises:
        HanseError: INVALID_INPUT where the shards do not come out even, or a class has too few examples for its shards.
    """
    check_sites(sites, len(labels))
    generator = np.random.default_rng(seed)
    classes = np.unique(labels)
    if not 1 <= classes_per_site <= len(classes):
        raise invalid("classes_per_site", classes_per_site, f"1 to {len(classes)}, the number of classes")
    shards, rest = divmod(sites * classes_per_site, len(classes))
    if rest:
        raise invalid(
            "sites * classes_per_site",
            f"{sites} * {classes_per_site}",
            f"a multiple of the number of classes, {len(classes)}",
        )
    if not 0 < balance <= 1:
        raise invalid("balance", balance, "in (0, 1]")
    # Sites in turn take the next classes of a circle: neighbours in it are distinct, so nobody takes one twice.
    circle = generator.permutation(classes)
    owners: dict[int, list[int]] = {int(label): [] for label in classes}
    for turn in range(sites * classes_per_site):
        if turn % len(classes) == 0 and len(classes) % classes_per_site == 0:
            circle = generator.permutation(classes)  # no site takes across the ends of two circles
        owners[int(circle[turn % len(classes)])].append(turn // classes_per_site)
    seats = generator.permutation(sites)
    parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
    for label in classes:
        members = generator.permutation(np.flatnonzero(labels == label))
        if len(members) < shards:
            raise invalid(
                "labels", f"{len(members)} examples of class {label}", f"at least {shards}, one for each shard"
            )
        for owner, shard in zip(owners[int(label)], _cut(members, shards, balance, generator), strict=True):
            parts[seats[owner]].append(shard)
    return shuffled(parts, generator)


def majority_classes(labels: Labels, sites: int, *, majority: int = 2, share: float = 0.9, seed: int = 0) -> Partition:
    """Each site has `majority` classes at random, which hold `share` of its examples; the other classes share the rest
    (Mugunthan, 2022, Table B.2: 90/10). Sizes differ, and majority classes may repeat across sites.

    Classes are handed out in proportion to what sites ask of them, so that every example is in exactly one site; the
    share is met exactly in expectation over classes that are asked for alike.

    Args:
        labels: (n,) integers.

    Raises:
        HanseError: INVALID_INPUT.
    """
    check_sites(sites, len(labels))
    generator = np.random.default_rng(seed)
    classes = np.unique(labels)
    if not 1 <= majority <= len(classes):
        raise invalid("majority", majority, f"1 to {len(classes)}, the number of classes")
    if not 0 < share <= 1:
        raise invalid("share", share, "in (0, 1]")
    wanted = np.zeros((sites, len(classes)))
    # Dealt like cards, so that every class is somebody's majority before one is so twice.
    deck: list[int] = []
    for site in range(sites):
        hand: list[int] = []
        while len(hand) < majority:
            if not any(card not in hand for card in deck):
                deck += [int(card) for card in generator.permutation(len(classes))]
            card = next(card for card in deck if card not in hand)
            deck.remove(card)
            hand.append(card)
        others = len(classes) - majority
        wanted[site] = (1 - share) / others if others else 0.0
        wanted[site, hand] = share / majority
    parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
    for column, label in enumerate(classes):
        members = generator.permutation(np.flatnonzero(labels == label))
        weights = wanted[:, column]
        weights = weights / weights.sum() if weights.sum() else np.full(sites, 1 / sites)
        for site, piece in enumerate(np.split(members, np.rint(np.cumsum(weights)[:-1] * len(members)).astype(int))):
            parts[site].append(piece)
    return shuffled(parts, generator)


def rotating_classes(labels: Labels, sites: int, *, classes_per_site: int, seed: int = 0) -> Partition:
    """Site i holds the classes (2i + j) mod C for j below `classes_per_site`, equal shares of each.

    Source: the tables of Wang, Shi and Chang, 2023, appendix D, which this closed form gives.

    Args:
        labels: (n,) integers 0 to C - 1, C = 2 * sites.

    Raises:
        HanseError: INVALID_INPUT where the closed form does not apply: classes are not twice the sites, or
            `classes_per_site` is odd or out of range.
    """
    check_sites(sites, len(labels))
    count = int(labels.max()) + 1
    if count != 2 * sites:
        raise invalid("sites", sites, f"half the number of classes, {count}")
    if classes_per_site % 2 or not 2 <= classes_per_site <= count:
        raise invalid("classes_per_site", classes_per_site, f"an even number from 2 to {count}")
    generator = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
    for label in range(count):
        owners = [site for site in range(sites) if (label - 2 * site) % count < classes_per_site]
        members = generator.permutation(np.flatnonzero(labels == label))
        for site, piece in zip(owners, np.array_split(members, len(owners)), strict=True):
            parts[site].append(piece)
    return shuffled(parts, generator)


def _cut(members: np.ndarray, shards: int, balance: float, generator: np.random.Generator) -> list[np.ndarray]:
    if balance == 1.0:
        return np.array_split(members, shards)
    spare = len(members) - shards
    shares = generator.dirichlet(np.full(shards, balance))
    sizes = 1 + np.floor(shares * spare).astype(int)
    sizes[: len(members) - int(sizes.sum())] += 1
    return np.split(members, np.cumsum(sizes)[:-1])
