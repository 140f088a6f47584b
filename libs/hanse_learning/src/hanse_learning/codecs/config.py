"""The `codec` section of a job: which codecs an update goes through. Loads no numpy, for the coordinator checks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.plugin_methods import require_method
from hanse_fabric.plugins import CODECS
from hanse_fabric.plugins import names as names_in
from hanse_learning.config.named import by_name
from hanse_schemas.job import Job, no_former_values

if TYPE_CHECKING:
    from hanse_learning.codecs.stages import Stage

Role = Literal["sparsify", "factor", "quantize", "difference", "pack"]
ORDER: tuple[Role, ...] = ("sparsify", "factor", "quantize", "difference", "pack")
"""In which codecs of a chain stand; of each role one at most."""

METHODS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "sparsify": {"choose": ("values", "name", "draw")},
    "factor": {"width": ("rows", "columns"), "factors": ("matrix", "former", "draw")},
    "quantize": {"write": ("values", "draw"), "read": ("data", "count", "dtype")},
    "difference": {"write": ("values", "draw"), "read": ("data", "count", "dtype")},
    "pack": {"pack": ("data",), "unpack": ("data", "most")},
}
"""What a codec of a role has, and what it is called with."""

HINT = "for example codec: {up: [{name: top_k, fraction: 0.05}, {name: float16}, {name: zstd}]}; see docs/codecs.md"


class CodecConfig(Frozen):
    """One codec of a chain: its settings as a job names them.

    A package offers a subclass under the entry-point group `hanse.codecs`, as Hanse does with its own; see
    docs/extending.md. Its module loads no numpy; `build` does.

    Attributes:
        name: in a job, a `Literal` with a default; the entry point's name.
        role: what it does to the values, which decides where it stands in a chain.
        after: the role that must stand before it; None: none.
        whole: whether nothing is left out: what arrives is what was given.
        examples: settings that its tests try; each is to be valid.
    """

    name: str
    role: ClassVar[Role]
    after: ClassVar[Role | None] = None
    whole: ClassVar[bool] = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    @property
    def way(self) -> Mapping[str, float] | None:
        """What the formulas say of it (`hanse_learning.codecs.bandwidth.Way`); None where they say nothing."""
        return None

    def build(self) -> Stage:
        """The codec itself: what `hanse_learning.codecs.stages` has for its role; these settings, where they have its
        methods.

        Raises:
            HanseError: INVALID_INPUT where a method is missing or cannot be called.
        """
        title = f"codec {self.name}"
        for method, arguments in METHODS[self.role].items():
            require_method(title, self, method, *arguments)
        if self.role == "sparsify" and not isinstance(getattr(self, "seeded", None), bool):
            expected = "an attribute `seeded`: ClassVar[bool], whether places follow from the seed alone"
            raise invalid(title, type(self).__name__, f"one with {expected}")
        return cast("Stage", self)

    def require_whole(self) -> None:
        """Check that the class has what a chain will ask of it, for those that are not Hanse's own.

        Raises:
            HanseError: INVALID_INPUT for no role, or one that there is not; as `build`.
        """
        role = getattr(type(self), "role", None)
        if role not in METHODS:
            raise invalid(f"codec {self.name}: role", role, f"one of {', '.join(ORDER)}, as a ClassVar")
        if type(self).build is CodecConfig.build:
            self.build()


class _BuiltIn(CodecConfig):
    """Hanse's own: built of their settings, in order, by a class of this room, which loads numpy."""

    made: ClassVar[str]

    def build(self) -> Stage:
        """See `CodecConfig`."""
        module, _, name = self.made.partition(":")
        settings = [getattr(self, field) for field in type(self).model_fields if field != "name"]
        built: Stage = getattr(import_module(f"hanse_learning.codecs.{module}"), name)(*settings)
        return built


class PercentileConfig(_BuiltIn):
    """Of each entry, the values beyond its `p`-th percentile are sent (Henkel 2021, section 3.2).

    Attributes:
        p: in percent; about 100 - p percent of the values are sent.
        of: what is compared: the `magnitude` of the values, or the values themselves (`value`, which sends increases
            alone and converges badly).
    """

    name: Literal["percentile"] = "percentile"
    p: float = Field(default=90.0, ge=0, lt=100)
    of: Literal["magnitude", "value"] = "magnitude"
    role: ClassVar[Role] = "sparsify"
    examples: ClassVar = ({"p": 50}, {"p": 90}, {"p": 10, "of": "value"})
    made: ClassVar = "sparsifiers:Percentile"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return _sent((100 - self.p) / 100)


class TopKConfig(_BuiltIn):
    """Of each entry, the values of largest magnitude are sent.

    Attributes:
        fraction: how many, of the entry's; one at least.
        k: how many; an entry with fewer elements is an error.
    """

    name: Literal["top_k"] = "top_k"
    fraction: float | None = Field(default=None, gt=0, lt=1)
    k: int | None = Field(default=None, ge=1)
    role: ClassVar[Role] = "sparsify"
    examples: ClassVar = ({"fraction": 0.1}, {"k": 2})
    made: ClassVar = "sparsifiers:TopK"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return None if self.fraction is None else _sent(self.fraction)

    @model_validator(mode="after")
    def _one_of_two(self) -> TopKConfig:
        if (self.fraction is None) == (self.k is None):
            raise ValueError(f"fraction {self.fraction} and k {self.k}: exactly one of them is needed")
        return self


class RandomKConfig(_BuiltIn):
    """Values at places that the task's seed chooses; the places are not sent.

    Attributes:
        fraction: how many, of each portion of an entry (of 65,536 elements at most); one at least.
    """

    name: Literal["random_k"] = "random_k"
    fraction: float = Field(gt=0, lt=1)
    role: ClassVar[Role] = "sparsify"
    examples: ClassVar = ({"fraction": 0.1},)
    made: ClassVar = "sparsifiers:RandomK"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return {"sent": self.fraction}


class NonzeroConfig(_BuiltIn):
    """Of each entry, the values that are not zero: of sites that have pruned, what is left."""

    name: Literal["nonzero"] = "nonzero"
    role: ClassVar[Role] = "sparsify"
    whole: ClassVar = True
    made: ClassVar = "sparsifiers:Nonzero"


class LowRankConfig(_BuiltIn):
    """Matrices as products of two narrow ones, which are better from round to round (Vogels et al. 2019, PowerSGD).

    Attributes:
        rank: columns of each factor. Entries for which that saves nothing, and those of one dimension, are sent as they
            are.
    """

    name: Literal["low_rank"] = "low_rank"
    rank: int = Field(default=4, ge=1, le=256)
    role: ClassVar[Role] = "factor"
    examples: ClassVar = ({"rank": 1}, {"rank": 4})
    made: ClassVar = "factors:LowRank"


class Float16Config(_BuiltIn):
    """Values in IEEE half precision (Henkel 2021, section 3.1); what is beyond its range becomes its largest number."""

    name: Literal["float16"] = "float16"
    role: ClassVar[Role] = "quantize"
    made: ClassVar = "quantizers:Float16"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return {"bits": 16}


class BFloat16Config(_BuiltIn):
    """Values with the exponent of float32 and seven bits of mantissa, rounded to the nearest."""

    name: Literal["bfloat16"] = "bfloat16"
    role: ClassVar[Role] = "quantize"
    made: ClassVar = "quantizers:BFloat16"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return {"bits": 16}


class IntegersConfig(_BuiltIn):
    """Values as integers of few bits, times a scale for each portion of an entry: its largest magnitude.

    Attributes:
        bits: of an integer: 8, 4, or 2 (which is TernGrad, Wen et al. 2017).
        rounding: `stochastic` is without bias; `nearest` errs less.
    """

    name: Literal["integers"] = "integers"
    bits: Literal[2, 4, 8] = 8
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    role: ClassVar[Role] = "quantize"
    examples: ClassVar = ({"bits": 8}, {"bits": 4}, {"bits": 2}, {"bits": 8, "rounding": "nearest"})
    made: ClassVar = "quantizers:Integers"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return {"bits": self.bits}


class TernaryConfig(_BuiltIn):
    """Of the values that a sparsifier kept, the signs, times their mean magnitude (Sattler et al. 2019)."""

    name: Literal["ternary"] = "ternary"
    role: ClassVar[Role] = "quantize"
    after: ClassVar[Role | None] = "sparsify"
    made: ClassVar = "quantizers:Ternary"

    @property
    def way(self) -> Mapping[str, float] | None:
        """See `CodecConfig`."""
        return {"bits": 1}


class DeltaConfig(_BuiltIn):
    """Of a model that goes down, the difference to the one that a site holds. It loses nothing."""

    name: Literal["delta"] = "delta"
    role: ClassVar[Role] = "difference"
    whole: ClassVar = True
    made: ClassVar = "deltas:Difference"


class ZstdConfig(_BuiltIn):
    """Frames packed without loss by Zstandard.

    Attributes:
        level: 1 is fast, 19 is small.
    """

    name: Literal["zstd"] = "zstd"
    level: int = Field(default=1, ge=1, le=19)
    role: ClassVar[Role] = "pack"
    whole: ClassVar = True
    made: ClassVar = "packers:Zstd"


def _sent(share: float) -> Mapping[str, float]:
    """Places by a bit each, or by 16 bits where at most one in sixteen is sent."""
    return {"sent": share, "place_bits": min(1.0, 16 * share)}


_SECTION: TypeAdapter[CodecConfig] = TypeAdapter(Annotated[CodecConfig, by_name(CODECS, CodecConfig, "float16")])


def check_chain(chain: Sequence[Mapping[str, Any]], field: str = "codec.up") -> tuple[CodecConfig, ...]:
    """Validate a chain.

    Args:
        chain: the codecs' sections, in the order in which they are applied.
        field: where it stands, for errors.

    Raises:
        HanseError: INVALID_INPUT naming the codec, its field, value and what was expected.
    """
    found: list[CodecConfig] = []
    for number, section in enumerate(chain):
        if "stale" in section:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{field}[{number}]: {no_former_values(section['stale'])}",
                hint="see docs/codecs.md",
            )  # fmt: skip
        if "name" not in section:  # of sections of other kinds one name is the default
            raise invalid(
                f"{field}[{number}].name", None, f"the name of a codec: {', '.join(names_in(CODECS))}", hint=HINT
            )
        try:
            config = _SECTION.validate_python(dict(section))
        except ValidationError as error:
            message = f"{field}[{number}]: {explain(error)}"
            raise HanseError(ErrorCode.INVALID_INPUT, message, hint=HINT) from None
        if not isinstance(config, _BuiltIn):
            config.require_whole()
        found.append(config)
    roles = [config.role for config in found]
    if roles != sorted(set(roles), key=ORDER.index):
        raise invalid(field, [config.name for config in found],
                      f"one codec at most of each of {', '.join(ORDER)}, in this order", hint=HINT)  # fmt: skip
    if {"sparsify", "factor"} <= set(roles):
        names = [config.name for config in found if config.role in ("sparsify", "factor")]
        raise invalid(field, names, "one of them: a product has no single values to leave out", hint=HINT)
    for config in found:
        if config.after is not None and config.after not in roles:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{field}: {config.name} needs a codec before it that can {config.after}; there is none among "
                + ", ".join(each.name for each in found),
                hint=HINT,
            )
    return tuple(found)


def split_down(chain: Sequence[Mapping[str, Any]]) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    """A checked `codec.down` in two: what the file is that sites begin with, none where it is the model's own; and how
    they come to it who hold an older one, none where all are sent the whole."""
    checked = check_chain(chain, "codec.down")
    at = next((number for number, config in enumerate(checked) if config.role == "difference"), len(checked))
    return sections_of(checked[:at]), sections_of(checked[at:])


def sections_of(checked: Sequence[CodecConfig]) -> tuple[dict[str, Any], ...]:
    """A checked chain as sections in which every setting stands: two chains are the same where these are."""
    return tuple(config.model_dump(mode="json") for config in checked)


def summed_fraction(job: Job) -> float:
    """How many of the parameters a masked sum of a job's is of: `random_k` by a seed that all sites share."""
    found = () if job.codec is None else check_chain(job.codec.up)
    return next((config.fraction for config in found if isinstance(config, RandomKConfig)), 1.0)


def check_job_codec(job: Job) -> None:
    """Validate a job's `codec` section, also against its other sections.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected.
    """
    codec = job.codec
    if codec is None:
        return
    checked = check_chain(codec.up)
    if any(each.role == "difference" for each in checked):
        raise invalid("codec.up", "delta", "a chain without it: what a site sends is a difference already", hint=HINT)
    _check_deltas(check_chain(codec.down, "codec.down"))
    if sparse := [each.name for each in check_chain(codec.down, "codec.down") if each.role in ("sparsify", "factor")]:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"codec.down: {sparse[0]} leaves out what the model would then lack",
            hint="models go down whole: take a codec that makes values shorter, such as float16",
        )  # fmt: skip
    if codec.error_feedback and all(config.whole or config.role == "pack" for config in checked):
        names = ", ".join(config.name for config in checked) or "an empty codec.up"
        raise invalid("codec.error_feedback", True, f"false: {names} leaves nothing out")


def _check_deltas(down: Sequence[CodecConfig]) -> None:
    """A difference has as many bytes as the model until it is packed. Sites take it apart outside of the worker's
    sandbox, by Hanse's own code."""
    names = [config.name for config in down]
    if any(config.role == "difference" for config in down) and down[-1].name != "zstd":
        raise invalid("codec.down", names, "zstd after delta, for a difference by itself is as large as the model",
                      hint="codec: {down: [{name: delta}, {name: zstd}]}; see docs/codecs.md")  # fmt: skip
