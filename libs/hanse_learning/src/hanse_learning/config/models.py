"""The `model` section of a job file: the built-in architectures and what may be chosen about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from hanse_learning.config.normalization import Built, Normalization, Normalized, batch_norm_as_normalization

_Width = Annotated[int, Field(ge=1, le=1 << 20)]


class LogisticConfig(Built):
    """Multinomial logistic regression: one linear layer to the classes' logits."""

    name: Literal["logistic"]


class LinearConfig(Built):
    """Linear regression: one linear layer to one value."""

    name: Literal["linear"]


class MlpConfig(Normalized):
    """A perceptron with hidden layers. Normalized by kernel, a hidden layer's values are one unit.

    Attributes:
        hidden: widths of the hidden layers.
        dropout: share of a hidden layer's values that training leaves out.
    """

    name: Literal["mlp"]
    hidden: tuple[_Width, ...] = (64,)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    _old = model_validator(mode="before")(batch_norm_as_normalization)

    def normalized_widths(self) -> tuple[int, ...]:
        return self.hidden


class CnnConfig(Normalized):
    """A small convolutional network for images: a block (3x3, activation, halving) per entry of `channels`.

    Attributes:
        channels: of each block.
        hidden: width of the linear layer before the output.
    """

    name: Literal["cnn"]
    channels: tuple[_Width, ...] = Field(default=(16, 32), min_length=1, max_length=8)
    hidden: _Width = 64

    _old = model_validator(mode="before")(batch_norm_as_normalization)

    def normalized_widths(self) -> tuple[int, ...]:
        return self.channels


class LenetConfig(Built):
    """LeNet-5: two convolutions of 5x5 with pooling, and three linear layers (LeCun et al., 1998; with ReLU)."""

    name: Literal["lenet"]


class TwoLayerCnnConfig(Built):
    """2CFNN: two convolutions of 5x5, padded, and a hidden layer of 512 (Henkel, 2021)."""

    name: Literal["2cfnn"]


class ThreeLayerCnnConfig(Built):
    """3CFNN: three convolutions of 3x3, unpadded, and a hidden layer of 1024 (Henkel, 2021)."""

    name: Literal["3cfnn"]


class VggConfig(Normalized):
    """VGG of 6, 11 or 16 layers with weights.

    Attributes:
        hidden: widths of the linear layers before the output; none by default but for vgg16, which has two of 4096.
    """

    name: Literal["vgg6", "vgg11", "vgg16"]
    hidden: tuple[_Width, ...] | None = Field(default=None, max_length=4)


class ResnetConfig(Normalized):
    """ResNets: the shallow 8 and 9 of private training (Nasirigerdeh et al., 2023), 20 for small images (option A), 18,
    34 and 50, and the pre-activation 18.

    Attributes:
        stem: of 18, 34, 50 and the pre-activation 18: `small` is a 3x3 convolution, `large` 7x7 by two and pooling.
    """

    name: Literal["resnet8", "resnet9", "resnet18", "resnet20", "resnet34", "resnet50", "preact_resnet18"]
    normalization: Normalization = "batch"
    stem: Literal["small", "large"] = "small"

    def normalized_widths(self) -> tuple[int, ...]:
        return (16,) if self.name == "resnet20" else (64,)

    @model_validator(mode="after")
    def _stem_fits(self) -> ResnetConfig:
        if self.stem == "large" and self.name in ("resnet8", "resnet9", "resnet20"):
            raise ValueError(f"stem: large is not of {self.name}, which is for small images")
        return self


class KnresnetConfig(Normalized):
    """KNResNets: kernel-normalized residual networks (Nasirigerdeh et al., 2024; 13: 2023, for private training).

    With another normalization each unit is that normalization, the activation and a plain convolution.

    Attributes:
        activation: `mish` for knresnet13, `relu` for the others, if it is not said.
        stem: `small` is a 3x3 convolution, `large` 7x7 by two and pooling.
    """

    name: Literal["knresnet13", "knresnet18", "knresnet34", "knresnet50"]
    normalization: Normalization = "kernel"
    stem: Literal["small", "large"] = "small"

    @model_validator(mode="before")
    @classmethod
    def _its_activation(cls, body: Any) -> Any:
        if isinstance(body, Mapping) and body.get("name") == "knresnet13":
            return {"activation": "mish", **body}
        return body

    def normalized_widths(self) -> tuple[int, ...]:
        return {"knresnet13": (64,), "knresnet18": (64, 724)}.get(self.name, (1,))


class DensenetConfig(Normalized):
    """DenseNet-20x16: three sets of five layers, each of which adds 16 channels (Nasirigerdeh et al., 2023)."""

    name: Literal["densenet20x16"]
    normalization: Normalization = "batch"

    def normalized_widths(self) -> tuple[int, ...]:
        return (16,)


class AlexnetConfig(Normalized):
    """AlexNet in one column (Krizhevsky, 2014), with dropout before the linear layers.

    Attributes:
        dropout: before each of the two hidden layers.
    """

    name: Literal["alexnet"]
    dropout: float = Field(default=0.5, ge=0, lt=1)


class FedLtnCnnConfig(Normalized):
    """The small network of FedLTN: two unpadded convolutions of 5x5, and hidden layers of 120 and 84."""

    name: Literal["fedltn_cnn"]

    def normalized_widths(self) -> tuple[int, ...]:
        return (6, 16)


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
    | KnresnetConfig
    | DensenetConfig
    | AlexnetConfig
    | FedLtnCnnConfig
)
ModelConfig = Annotated[AnyModel, Field(discriminator="name")]
OF_IMAGES = (
    CnnConfig, LenetConfig, TwoLayerCnnConfig, ThreeLayerCnnConfig, VggConfig, ResnetConfig, KnresnetConfig,
    DensenetConfig, AlexnetConfig, FedLtnCnnConfig,
)  # fmt: skip
SMALLEST_SIDE = {
    "lenet": 12, "2cfnn": 4, "3cfnn": 18, "vgg6": 8, "vgg11": 32, "vgg16": 32, "resnet8": 8, "resnet9": 8,
    "knresnet13": 8, "knresnet18": 16, "knresnet34": 16, "knresnet50": 8, "densenet20x16": 4, "alexnet": 63,
    "fedltn_cnn": 16,
}  # fmt: skip
"""Pixels of an image's height and width that are left to the last layer; 1 for all others."""
SMALLEST_LARGE = {"knresnet13": 31, "knresnet18": 93, "knresnet34": 93, "knresnet50": 29}
"""The same with a large stem."""
BUILT_IN = frozenset(name for model in get_args(AnyModel) for name in get_args(model.model_fields["name"].annotation))


def has_batch_statistics(config: AnyModel) -> bool:
    """Whether the model normalizes by statistics of the batch, so that its examples are not independent."""
    return isinstance(config, Normalized) and config.normalization == "batch"


def least_side(config: AnyModel) -> int:
    """Pixels of an image's height and width that the model needs; 1 where any image will do."""
    large = isinstance(config, KnresnetConfig) and config.stem == "large"
    return (SMALLEST_LARGE if large else SMALLEST_SIDE).get(config.name, 1)
