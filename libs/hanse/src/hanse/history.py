"""A run's finished rounds as people compare them: over all sites, by site, and what it took to reach a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hanse.display import Table
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install
from hanse_schemas.metrics import known
from hanse_schemas.targets import Reached, reached

Values = list[float | None]
"""Of one metric by finished round; None where it was not measured."""
ASKED_FOR = (
    "evaluate.metrics of the job asks for them: auroc, f1, ece, or of a regression concordance; docs/model-metrics.md"
)
"""What is said where an evaluation has metrics and nothing beside them."""
_FIRST = ("accuracy", "r2", "loss", "mse", "train_accuracy", "train_r2", "train_loss", "train_mse")
_BARS = "▁▂▃▄▅▆▇█"
_WAYS = ("down", "up")
_UNITS = ("B", "kB", "MB", "GB", "TB")


class History:
    """The finished rounds of a run, in order, as the hub answers them.

    Attributes:
        rounds: the answers.
        wire: what the hub saw pass, by round (0: what belongs to none), by site, and by link and direction; of all
            sites together where a job hides single ones.
    """

    def __init__(self, rounds: Sequence[Mapping[str, Any]], wire: Sequence[Mapping[str, Any]] = ()) -> None:
        self.rounds = list(rounds)
        self.wire: dict[int, dict[str, dict[str, int]]] = {int(each["round"]): dict(each["sites"]) for each in wire}

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def metric(self) -> str:
        """What to look at first: accuracy where there is one; nothing where nothing was measured."""
        names = [name for item in self.rounds for name in item.get("metrics") or {}]
        return next((name for name in (*_FIRST, *sorted(names)) if name in names), "")

    def mean(self, metric: str) -> Values:
        """Over the sites, weighted by their examples (in masked runs by the job's weights)."""
        return [_number((item.get("metrics") or {}).get(metric)) for item in self.rounds]

    def minimum(self, metric: str) -> Values:
        """The smallest value of a site."""
        return self.mean(f"{metric}_min")

    def sites(self, metric: str) -> dict[str, Values]:
        """By site; none in masked runs, where nobody sees them."""
        names = sorted({name for item in self.rounds for name in item.get("sites") or {}})
        return {
            name: [_number(((item.get("sites") or {}).get(name) or {}).get(metric)) for item in self.rounds]
            for name in names
        }

    def mean_of_sites(self, metric: str) -> Values:
        """Over the sites, each alike, however many examples it has."""
        by_round = zip(*self.sites(metric).values(), strict=True)
        there = [[value for value in values if value is not None] for values in by_round]
        return [sum(values) / len(values) if values else None for values in there]

    @property
    def down(self) -> int:
        """Bytes of models to all sites together."""
        return sum(_sent(item, "down") for item in self.rounds)

    @property
    def up(self) -> int:
        """Bytes of updates from all sites together."""
        return sum(_sent(item, "up") for item in self.rounds)

    def on_the_wire(self) -> dict[str, int]:
        """Bytes by link and direction, over all rounds and sites: messages on the `bus`, objects from and to the
        `store`; protocol lines and TLS are not in them."""
        links = ("bus_down", "bus_up", "store_down", "store_up")
        passed = [site for sites in self.wire.values() for site in sites.values()]
        return {link: sum(site.get(link, 0) for site in passed) for link in links}

    def reached(self, target: float, metric: str = "", *, site: str = "") -> Reached | None:
        """The first round in which a metric was at a target or better, and the bytes up and down until then; None: not
        reached.

        Args:
            metric: `self.metric` where none is given; smaller is better for losses.
            site: where the target is one site's.

        Raises:
            HanseError: INVALID_INPUT for a metric or site that was not measured.
        """
        name = self._measured(metric)
        values = self.sites(name).get(site, []) if site else self.mean(name)
        if site and all(value is None for value in values):
            raise invalid("site", site, f"one that measured {name}: {', '.join(self.sites(name)) or 'none did'}")
        sizes = [_sent(item, "down") + _sent(item, "up") for item in self.rounds]
        found = reached(values, target, larger_is_better=larger_is_better(name), round_bytes=sizes)
        return None if found is None else Reached(int(self.rounds[found.round - 1]["round"]), found.bytes)

    def table(self, metric: str = "") -> Table:
        """A metric over the rounds: mean over the examples and over the sites, the sites' minimum, and each site.

        Raises:
            HanseError: INVALID_INPUT for a metric that was not measured.
        """
        name = self._measured(metric)
        lines = [
            ("all examples", self.mean(name)),
            ("mean of sites", self.mean_of_sites(name)),
            ("minimum", self.minimum(name)),
            *self.sites(name).items(),
        ]  # a list: a site may be named as one of these
        rows = [self._row(label, values, name) for label, values in lines if any(v is not None for v in values)]
        return Table((name, "first", "last", "best", "in round", "over the rounds"), rows)

    def curves(self, round: int | None = None) -> dict[str, Any]:  # noqa: A002 - as everywhere
        """What is known of an evaluation beside its metrics, as far as the job's `evaluate.metrics` need it:
        `confusion` (true class by row), `calibration`, `roc`, `precision_recall`, `by_class`, `examples`, `sites`.

        Args:
            round: the newest that was evaluated where none is given; the hub has also that of the best model.

        Raises:
            HanseError: NOT_FOUND where there are none.
        """
        there = {int(item["round"]): item["curves"] for item in self.rounds if item.get("curves")}
        number = max(there, default=0) if round is None else round
        if number not in there:
            which = f"there are those of round {', '.join(map(str, there))}" if there else "there are none"
            raise HanseError(
                ErrorCode.NOT_FOUND, f"curves of {'a round' if round is None else f'round {round}'}: {which}",
                hint=ASKED_FOR,
            )  # fmt: skip
        found: dict[str, Any] = {"round": number, **there[number]}
        return found

    @property
    def evaluated(self) -> dict[str, Any]:
        """As `curves` of the newest evaluation that has some; empty where none has."""
        return self.curves() if any(item.get("curves") for item in self.rounds) else {}

    @property
    def undefined(self) -> dict[str, str]:
        """Why metrics that the job asks for are not in the newest evaluation, by name."""
        told = [item for item in self.rounds if item.get("curves") or item.get("undefined")]
        return dict(told[-1].get("undefined") or {}) if told else {}

    def _measured(self, metric: str) -> str:
        name = metric or self.metric
        if self.rounds and not any(value is not None for value in self.mean(name)):
            measured = sorted({name for item in self.rounds for name in item.get("metrics") or {}})
            raise invalid("metric", name, f"one of {', '.join(measured)}" if measured else "rounds that measure some")
        return name

    def _row(self, label: str, values: Values, metric: str) -> tuple[str, ...]:
        there = [(number, value) for number, value in enumerate(values) if value is not None]
        sign = 1 if larger_is_better(metric) else -1
        place, best = max(there, key=lambda pair: (sign * pair[1], -pair[0]))
        first, last = there[0][1], there[-1][1]
        return (
            label, f"{first:.4f}", f"{last:.4f}", f"{best:.4f}", str(self.rounds[place]["round"]), sparkline(values),
        )  # fmt: skip

    def frame(self) -> Any:
        """Each site's metrics as a pandas DataFrame indexed by round and site.

        Raises:
            HanseError: NOT_FOUND when pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise HanseError(ErrorCode.NOT_FOUND, "pandas: not installed", hint=to_install("hanse[notebook]")) from None
        rows = [
            {"round": item["round"], "site": site, **measured}
            for item in self.rounds
            for site, measured in sorted((item.get("sites") or {}).items())
        ]
        return pandas.DataFrame(rows, columns=None if rows else ["round", "site"]).set_index(["round", "site"])

    def _repr_html_(self) -> str:
        return self.table().html() if self.metric else f"<p>{self!r}</p>"

    def __repr__(self) -> str:
        if not self.metric:
            return f"{len(self)} rounds are finished; nothing was measured."
        return f"{self.table()}\n{self.traffic()}".rstrip()

    def traffic(self) -> str:
        """What was sent, in words; nothing where the hub did not count it."""
        if not self.down + self.up:
            return ""
        said = f"{size_text(self.down)} of models to the sites, {size_text(self.up)} of updates from them"
        planned = {way: sum(int((item.get("formula") or {}).get(way, 0)) for item in self.rounds) for way in _WAYS}
        if all(planned.values()):
            said += f" (training by the formulas: {size_text(planned['down'])} and {size_text(planned['up'])})"
        seen = self.on_the_wire()
        if any(seen.values()):
            down, up = (size_text(seen[f"bus_{way}"] + seen[f"store_{way}"]) for way in _WAYS)
            said += f"; with all that controls the run the hub saw {down} down and {up} up"
        return said


def larger_is_better(metric: str) -> bool:
    """Whether a metric is to rise. Pure."""
    found = known(metric.removeprefix("train_"))
    return found is None or found.better == "max"


def sparkline(values: Values) -> str:
    """A small curve of the last 30 values, from the smallest to the largest among them; a dot where there is none.
    Pure."""
    shown = values[-30:]
    there = [value for value in shown if value is not None]
    if not there:
        return ""
    least, spread = min(there), max(there) - min(there)
    steps = len(_BARS) - 1
    return "".join(
        "·" if value is None else _BARS[round((value - least) / spread * steps) if spread > 0 else steps // 2]
        for value in shown
    )


def size_text(size: int) -> str:
    """Bytes, to three digits: `12.3 MB`. Pure."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.3g} {_UNITS[unit]}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _sent(item: Mapping[str, Any], way: str) -> int:
    return int((item.get("bytes") or {}).get(way, 0))
