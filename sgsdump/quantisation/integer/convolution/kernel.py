"""A convolution's stored weights and how they are applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.models.graph import attribute

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True, eq=False)
class Kernel:
    """Weights in Conv's layout (O, I / group, ...), ConvTranspose's (I, O / group, ...), or a matrix: MatMul's (I, O),
    with ``transposed`` (O, I).

    name        of the weights among the constants.
    op_type     Conv, ConvTranspose or MatMul, with the node's own ``attributes``.
    """

    name: str
    values: np.ndarray
    op_type: str
    group: int = 1
    transposed: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def pads(self) -> bool:
        return any(self.attributes.get("pads", ())) or "auto_pad" in self.attributes

    @property
    def depthwise(self) -> bool:
        return self.op_type == "Conv" and 1 < self.group == self.values.shape[0] and self.values.shape[1] == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value per output channel, to broadcast over the output."""
        return (-1,) if self.op_type == "MatMul" else (-1, *[1] * (self.values.ndim - 2))

    def sums(self) -> np.ndarray:
        """The sum of each output channel's weights."""
        return self._over_channel(self.values.astype(np.int64))

    def largest(self, part: np.ndarray) -> float:
        """The largest sum of absolute weights of any output channel."""
        return float(self._over_channel(np.abs(part.astype(np.int64))).max())

    def per_channel(self, values: np.ndarray) -> np.ndarray:
        """One value per output channel, shaped to scale the weights."""
        ndim = self.values.ndim
        if self.op_type == "MatMul":
            return values.reshape((-1, 1) if self.transposed else (1, -1))
        if self.op_type == "Conv":
            return values.reshape(-1, *[1] * (ndim - 1))
        inputs, outputs = self.values.shape[:2]
        spread = np.repeat(values.reshape(self.group, 1, outputs), inputs // self.group, axis=1)
        return spread.reshape(inputs, outputs, *[1] * (ndim - 2))

    def _over_channel(self, values: np.ndarray) -> np.ndarray:
        if self.op_type == "MatMul":
            return values.sum(axis=1 if self.transposed else 0)
        if self.op_type == "Conv":
            return values.reshape(values.shape[0], -1).sum(axis=1)
        inputs, outputs = values.shape[:2]
        return values.reshape(self.group, inputs // self.group, outputs, -1).sum(axis=(1, 3)).reshape(-1)


def kernel_of(node: NodeProto, name: str, values: np.ndarray) -> Kernel | None:
    """The kernel of a Conv, ConvTranspose, Gemm or MatMul; None for a product that is not of plain matrices."""
    if node.op_type in ("Conv", "ConvTranspose"):
        kept = ("kernel_shape", "pads", "strides", "dilations", "group", "auto_pad", "output_padding", "output_shape")
        attributes = {key: attribute(node, key) for key in kept if attribute(node, key) is not None}
        if attributes.get("auto_pad") in (b"NOTSET", b"VALID"):
            del attributes["auto_pad"]
        return Kernel(name, values, node.op_type, attributes.get("group", 1), False, attributes)
    if values.ndim != 2 or attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1.0:
        return None
    return Kernel(name, values, "MatMul", transposed=bool(attribute(node, "transB", 0)))
