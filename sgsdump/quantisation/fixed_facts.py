"""What a fixed model remembers of how it was made; ``fixed_metadata`` keeps it in the model's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sgsdump.sidecars.input_config import ModelInput
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that the hardware keeps as integers.

    dtype   uint8 or int16.
    stored  name of the integers in the fixed model's graph; ``real`` of the float32 they mean, where it is there.
    picture  a picture input, which takes raw bytes.
    """

    dtype: np.dtype
    scale: float
    zero_point: int
    stored: str
    real: str | None
    picture: bool = False

    @property
    def quant(self) -> Quant:
        return Quant(self.dtype, self.scale, self.zero_point, exact=True)


@dataclass(frozen=True)
class StoredWeights:
    """A convolution's weights.

    name   of the float weights they were made from.
    dtype  int8 or int16.
    scale  one step, or one for each index of ``axis``.
    """

    name: str
    dtype: np.dtype
    scale: float | tuple[float, ...]
    axis: int | None

    @property
    def quant(self) -> Quant:
        return Quant(self.dtype, np.asarray(self.scale, np.float32), 0, self.axis, exact=True)


@dataclass(frozen=True)
class DumpedOperator:
    """One operator as the simulators dump it.

    in_type, out_type  its type in the records of its inputs and of its outputs: a fused operator has two.
    inputs, outputs    variable tensors by the float model's names.
    constants          initializers, convolutions' weights by their stored names.
    """

    in_type: str
    out_type: str
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """What the fixed model was made from: the inputs of input_config.ini, and the range of every stored tensor and
    weight, and of convolutions' output channels (empty in models of earlier versions)."""

    inputs: tuple[ModelInput, ...] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)
    channels: Mapping[str, Range] = field(default_factory=dict)


@dataclass(frozen=True)
class FixedFacts:
    """``weights`` by stored name; ``convolutions``: name of a convolution's output -> stored name of its weights;
    ``biases``: stored name of bias and multiplier rows -> name of the bias."""

    tensors: Mapping[str, StoredTensor]
    weights: Mapping[str, StoredWeights]
    convolutions: Mapping[str, str]
    operators: tuple[DumpedOperator, ...]
    origin: Origin | None = None
    biases: Mapping[str, str] = field(default_factory=dict)
