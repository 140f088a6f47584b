"""The `model` section of a job file: the built-in architectures and what may be chosen about each.

A normalization is none, batch, group or layer, wherever an architecture has normalized layers: batch statistics couple
the examples of a batch, so that differential privacy and utility-preserving training refuse them; the others do not.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hanse_fabric.messages.base import Frozen
from hanse_learning.config.state import StateRules

BufferRule = Literal["average", "pool_variance", "keep_newest", "keep_local"]
Activation = Literal["relu", "tanh", "gelu"]
Normalization = Literal["none", "batch", "group", "layer"]
_Width = Annotated[int, Field(ge=1, le=1 << 20)]


class _Built(Frozen):
    """What all architectures have.

    Attributes:
        inputs: shape of one example; None: from the project's schema, or from the data where it says nothing.
        outputs: number of classes, 1 for regression; None: as `inputs`.
        buffers: rules by pattern of buffer name (`*.running_mean`), the first that fits.
        state: which entries are global, local or frozen; the first rule that fits.
        dtype: of parameters and arithmetic.
    """

    inputs: tuple[_Width, ...] | None = Field(default=None, min_length=1, max_length=4)
    outputs: int | None = Field(default=None, ge=1, le=1 << 20)
    buffers: dict[str, BufferRule] = {}
    state: StateRules = ()
    dtype: Literal["float32", "float64"] = "float32"


class LogisticConfig(_Built):
    """Multinomial logistic regression: one linear layer to the classes' logits."""

    name: Literal["logistic"]


class LinearConfig(_Built):
    """Linear regression: one linear layer to one value."""

    name: Literal["linear"]


class MlpConfig(_Built):
    """A perceptron with hidden layers."""

    name: Literal["mlp"]
    hidden: tuple[_Width, ...] = (64,)
    activation: Activation = "relu"
    batch_norm: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)


class CnnConfig(_Built):
    """A small convolutional network for images: a block (3x3, activation, halving) per entry of `channels`."""

    name: Literal["cnn"]
    channels: tuple[_Width, ...] = Field(default=(16, 32), min_length=1, max_length=8)
    hidden: _Width = 64
    activation: Activation = "relu"
    batch_norm: bool = False


class _Normalized(_Built):
    """An architecture with a choice of normalization.

    Attributes:
        groups: of a group normalization; every normalized width must be a multiple of it.
        activation: `mish` is the one of private training (Nasirigerdeh et al., 2023).
    """

    normalization: Normalization = "batch"
    groups: int = Field(default=32, ge=1, le=1024)
    activation: Literal["relu", "mish"] = "relu"

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        name: str = getattr(self, "name", "")
        narrowest = 16 if name == "resnet20" else 64  # of which all other widths are multiples
        if self.normalization == "group" and narrowest % self.groups:
            raise ValueError(
                f"groups: {self.groups} does not divide {narrowest}, the narrowest normalized width of {name}"
            )
        return self


class LenetConfig(_Built):
    """LeNet-5: two convolutions of 5x5 with pooling, and three linear layers (LeCun et al., 1998; with ReLU)."""

    name: Literal["lenet"]


class TwoLayerCnnConfig(_Built):
    """2CFNN: two convolutions of 5x5, padded, and a hidden layer of 512 (Henkel, 2021)."""

    name: Literal["2cfnn"]


class ThreeLayerCnnConfig(_Built):
    """3CFNN: three convolutions of 3x3, unpadded, and a hidden layer of 1024 (Henkel, 2021)."""

    name: Literal["3cfnn"]


class VggConfig(_Normalized):
    """VGG of 6, 11 or 16 layers with weights.

    Attributes:
        hidden: widths of the linear layers before the output; none by default but for vgg16, which has two of 4096.
    """

    name: Literal["vgg6", "vgg11", "vgg16"]
    normalization: Normalization = "none"
    hidden: tuple[_Width, ...] | None = Field(default=None, max_length=4)


class ResnetConfig(_Normalized):
    """ResNets: the shallow 8 and 9 of private training (Nasirigerdeh et al., 2023), 20 for small images (option A), 18,
    34 and 50, and the pre-activation 18.

    Attributes:
        stem: of 18, 34, 50 and the pre-activation 18: `small` is a 3x3 convolution, `large` 7x7 by two and pooling.
    """

    name: Literal["resnet8", "resnet9", "resnet18", "resnet20", "resnet34", "resnet50", "preact_resnet18"]
    stem: Literal["small", "large"] = "small"

    @model_validator(mode="after")
    def _stem_fits(self) -> Self:
        if self.stem == "large" and self.name in ("resnet8", "resnet9", "resnet20"):
            raise ValueError(f"stem: large is not of {self.name}, which is for small images")
        return self


AnyModel = (
    LogisticConfig
    | LinearConfig
    | MlpConfig
    | CnnConfig
    | LenetConfig
    | TwoLayerCnnConfig
    | ThreeLayerCnnConfig
    | VggConfig
    | ResnetConfig
)
ModelConfig = Annotated[AnyModel, Field(discriminator="name")]
OF_IMAGES = (CnnConfig, LenetConfig, TwoLayerCnnConfig, ThreeLayerCnnConfig, VggConfig, ResnetConfig)
SMALLEST_SIDE = {
    "lenet": 12, "2cfnn": 4, "3cfnn": 18, "vgg6": 8, "vgg11": 32, "vgg16": 32, "resnet8": 8, "resnet9": 8,
}  # fmt: skip
"""Pixels of an image's height and width that are left to the last layer; 1 for all others."""
BUILT_IN = frozenset(
    {
        "logistic", "linear", "mlp", "cnn", "lenet", "2cfnn", "3cfnn", "vgg6", "vgg11", "vgg16", "resnet8", "resnet9",
        "resnet18", "resnet20", "resnet34", "resnet50", "preact_resnet18",
    }
)  # fmt: skip


def has_batch_statistics(config: AnyModel) -> bool:
    """Whether the model normalizes by statistics of the batch, so that its examples are not independent."""
    if isinstance(config, MlpConfig | CnnConfig):
        return config.batch_norm
    return isinstance(config, VggConfig | ResnetConfig) and config.normalization == "batch"
