"""Link a model quantised with another tool to its float model: matching tensors and weights.

A *unit* is what a quantiser quantises or skips as a whole: a float operator with the Relu or Clip that the quantised
model lacks. A tensor stays quantised as long as a unit that writes or reads it is quantised. A weight stays quantised
as long as a unit that reads it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.naming.pairs_by_quantisation import ACTIVATIONS, twins_of
from sgsdump.dumps.quantised_graph import MOVES, Node, float_kind, is_passed
from sgsdump.errors import ModelError
from sgsdump.models.external_data import in_one_piece
from sgsdump.models.graph import sorted_nodes, values_of
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import single_precision
from sgsdump.models.quantised_model import QuantisedModel, StoredWeight

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.model import Model
    from sgsdump.tensors.types import Quant

EPSILON = float(np.finfo(np.float64).eps)
ROUNDING = 0.1  # four bits in blocks reach 0.02
IN_PROPORTION = 15.0  # decibels: what four bits achieve


@dataclass(frozen=True)
class Unit:
    """A float operator that was quantised.

    ``names`` of its nodes ("" if unnamed), ``output`` is the tensor it makes.
    """

    output: str
    op_type: str
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class QuantisedTensor:
    """An activation that the quantised model stores as integers.

    name    name of the float tensor.
    root    name before quantisation in the quantised model; ``holder``: name of the tensor that holds the integers.
    quant   None if the scale is computed at run time.
    units   units that keep the tensor quantised.
    """

    name: str
    root: str
    holder: str
    quant: Quant | None
    units: frozenset[Unit]


@dataclass(frozen=True, eq=False)
class QuantisedWeight:
    """A quantised weight: ``values`` of the integers and the ``real`` float original, in one shape.

    scaled_with  for a bias without a scale of its own, the weight that sets its scale; both share a wrong scale.
    """

    name: str
    real: np.ndarray
    values: np.ndarray
    units: frozenset[Unit]
    scaled_with: str = ""

    @property
    def sqnr(self) -> float:
        """Signal-to-noise ratio in decibels, as onnxruntime's qdq_loss_debug measures it."""
        return sqnr(self.real, self.values)

    @property
    def factor(self) -> float:
        """Factor by which the scale is too large, if nothing else is wrong: a least-squares fit of values to originals.

        1.0 if they are not proportional or the factor is within rounding.
        """
        real, values = (array.astype(np.float64).ravel() for array in (self.real, self.values))
        factor = float(real @ values) / max(float(real @ real), EPSILON)
        is_rounding = abs(factor - 1) <= ROUNDING or not np.isfinite(factor)
        return 1.0 if is_rounding or sqnr(factor * real, values) < IN_PROPORTION else factor


def sqnr(real: np.ndarray, values: np.ndarray) -> float:
    """Return the signal-to-quantisation-noise ratio of all values in decibels: 20 log10(|real| / |real - values|)."""
    signal, noise = (float(np.linalg.norm(array.astype(np.float64).ravel())) for array in (real, real - values))
    return decibels(signal, noise)


def decibels(signal: float, noise: float) -> float:
    return float(20 * np.log10(max(signal, EPSILON) / max(noise, EPSILON)))


def float_proto(model: Model) -> ModelProto:
    """Return the float model in float32, in execution order, at the opset used here, with unchanged tensor names.

    Raises ModelError.
    """
    whole = in_one_piece(model.proto, None if model.folder is None else str(model.folder))
    ordered = type(whole)()
    ordered.CopyFrom(whole)
    del ordered.graph.node[:]
    ordered.graph.node.extend(sorted_nodes(whole.graph))
    return lift(single_precision(ordered))


class QuantisedPair:
    """The float model and its quantised copy. Raises ModelError if they have no tensor or weight in common."""

    def __init__(self, float_proto: ModelProto, quantised_proto: ModelProto):
        self.float = QuantisedModel(float_proto)
        self.quantised = QuantisedModel(quantised_proto)
        self.twins = twins_of(self.quantised.groups, self.float.groups)
        self._floats = {own: root for root, own in self.twins.roots.items()}
        if not self.tensors and not self.weights:
            raise ModelError(
                "no quantised tensor or weight matches the float model. Was the model quantised from this float model?"
            )

    @cached_property
    def units(self) -> dict[str, Unit]:
        """The unit of each tensor that its nodes make."""
        units: dict[str, Unit] = {}
        graph = self.quantised.groups
        stored = {weight.real for weight in self.quantised.weights}
        held = {name for group in graph.groups.values() for name in (*group.codes, *group.reals)}
        for node in graph.nodes:
            if is_passed(node) or not (held | stored).intersection(node[2]):
                continue
            for output in self._float_outputs(node):
                made = [*self._chain(output, node)]
                if made:
                    names = tuple(part[0] for part in made)
                    unit = Unit(output, float_kind(made[-1][1]), names)
                    units |= dict.fromkeys((name for part in made for name in part[3] if name), unit)
        return units

    def _float_outputs(self, node: Node) -> Iterator[str]:
        """Yield the float tensors that an operator of the quantised model makes, through its arithmetic steps."""
        graph, waiting, seen = self.quantised.groups, [name for name in node[3] if name], set[str]()
        while waiting:
            name = waiting.pop()
            root = graph.root(name)
            if root in self._floats:
                yield self._floats[root]
            elif name not in seen and float_kind(node[1]) != node[1]:
                waiting += [out for reader in graph.readers.get(root, ()) for out in reader[3] if out]
            seen.add(name)

    def _chain(self, output: str, node: Node) -> Iterator[Node]:
        """Yield the float nodes from the producer of a tensor back to the node of the quantised operator's kind.

        Only operators that quantisers fold may lie between.
        """
        makers = self.float.groups.makers
        part = makers.get(output)
        while part is not None:
            yield part
            if float_kind(node[1]) == part[1] or part[1] not in (*ACTIVATIONS, "BatchNormalization", "Add"):
                return
            data = [name for name in part[2] if name in makers]
            part = makers[data[0]] if data else None

    @cached_property
    def tensors(self) -> tuple[QuantisedTensor, ...]:
        """The quantised tensors in the order of the float nodes; one per float tensor."""
        graph = self.quantised.groups
        found = []
        for own, root in self._floats.items():
            group = graph.groups[own]
            if not group.is_quantised or root in self.float.constants:
                continue
            quant = self.quantised.quants.get(group.holder)
            if quant is None and not any(name in graph.dynamic for name in group.codes):
                continue
            found.append(QuantisedTensor(root, own, group.holder, quant, frozenset(self._keeping(root))))
        order = {name: index for index, node in enumerate(self.float.groups.nodes) for name in node[3]}
        return tuple(sorted(found, key=lambda tensor: order.get(tensor.name, -1)))

    def _keeping(self, root: str, depth: int = 0) -> set[Unit]:
        """Return the units that keep a float tensor quantised: its producer and readers, except moving operators."""
        graph = self.float.groups
        units = {
            self.units[node[3][0]]
            for node in graph.readers.get(root, ())
            if node[3] and node[3][0] in self.units and node[1] not in MOVES
        }
        maker = graph.makers.get(root)
        if maker is not None and maker[1] in MOVES and maker[2] and depth < len(graph.nodes):
            return units | self._keeping(graph.root(maker[2][0]), depth + 1)
        return units | ({self.units[root]} if root in self.units else set())

    @cached_property
    def weights(self) -> tuple[QuantisedWeight, ...]:
        """The weights with a known float original, including biases; ``unlinked`` are the others."""
        return self._linked[0]

    @property
    def unlinked(self) -> tuple[str, ...]:
        """Weights of the quantised model without a float original of the same shape."""
        return self._linked[1]

    @cached_property
    def _linked(self) -> tuple[tuple[QuantisedWeight, ...], tuple[str, ...]]:
        found: dict[str, QuantisedWeight] = {}
        unlinked = []
        names: dict[str, str] = {}
        readers: dict[str, list[tuple[Node, int]]] = defaultdict(list)
        for node in self.quantised.groups.nodes:
            for slot, name in enumerate(node[2]):
                readers[name].append((node, slot))
        for weight in self.quantised.weights:
            read = [(node, slot) for node, slot in readers.get(weight.real, ()) if not is_passed(node)]
            name = names[weight.name] = self._original(weight, read)
            if not name:
                unlinked.append(weight.name)
                continue
            units = {self.units[out] for node, _ in read for out in self._float_outputs(node) if out in self.units}
            real = values_of(self.float.constants[name]).astype(np.float32)
            with_ = names.get(weight.scaled_with, "")
            found.setdefault(name, QuantisedWeight(name, real, _shaped(weight, real), frozenset(units), with_))
        return tuple(found.values()), tuple(unlinked)

    def _original(self, weight: StoredWeight, readers: Sequence[tuple[Node, int]]) -> str:
        """Return the name of the float weight, by name or by the operator that reads it; "" if none has the shape."""
        names = [self._floats.get(self.quantised.groups.root(weight.real), weight.name), weight.name]
        for node, slot in readers:
            for output in self._float_outputs(node):
                part = [*self._chain(output, node)][-1:]
                place = _FLOAT_SLOTS.get(node[1], {}).get(slot, slot)
                names += [node[2][place] for node in part if node[1] == float_kind(node[1]) and place < len(node[2])]
        return next((name for name in names if self._is_of(name, weight)), "")

    def _is_of(self, name: str, weight: StoredWeight) -> bool:
        tensor = self.float.constants.get(name)
        return tensor is not None and int(np.prod(tensor.dims)) == weight.codes.size


# The input of the float operator that corresponds to an input of its integer form.
_FLOAT_SLOTS: Mapping[str, Mapping[int, int]] = {
    "QLinearConv": {3: 1, 8: 2},
    "QLinearMatMul": {0: 0, 3: 1},
    "QLinearAdd": {0: 0, 3: 1},
    "QLinearMul": {0: 0, 3: 1},
    "QGemm": {0: 0, 3: 1, 6: 2},
    "ConvInteger": {1: 1},
    "MatMulInteger": {1: 1},
    "MatMulNBits": {1: 1},
}


def _shaped(weight: StoredWeight, real: np.ndarray) -> np.ndarray:
    """Return the weight's values in the float original's shape; a matrix may be transposed."""
    values = weight.values
    if values.shape == real.shape:
        return values
    if values.ndim == 2 and values.shape == real.shape[::-1]:
        return values.T
    return values.reshape(real.shape)
