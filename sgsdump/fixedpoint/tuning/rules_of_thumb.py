"""Rules of the SDK manual for INT16 convolution inputs, applied to a calibration and a comparison.

1. The range of the convolution's input, max - min, is over 30.
2. The range is wide, and the values of the float model are concentrated in a small part of the range.
3. The RMSE of a layer (fixed against float model) is over 0.5: this selects the nearest convolutions before the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.distribution import WIDE, Distribution, distributions, layers, pair_ranges
from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.formats.sigmastar.side_files import with_scales
from sgsdump.errors import ConfigError
from sgsdump.files.names import normalised
from sgsdump.fixedpoint.quantisation.analysis import Analysis, is_convolution, sdk_name
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
from sgsdump.models.graph import RESHAPED, Graph
from sgsdump.tensors.types import Range

RMSE_OVER = 0.5


@dataclass(frozen=True)
class Convolution:
    """One convolution.

    name           output of its node.
    input          its first input; ``domain``: domain of the input.
    layer          tensor that its operator stores.
    reads_picture  whether it reads an image, which always has 8 bits.
    config_names   words of ``tensor_arrays`` that raise the input; empty for the input's own name.
    """

    name: str
    op_type: str
    input: str
    domain: str
    layer: str
    reads_picture: bool
    config_names: tuple[str, ...] = ()

    @property
    def known_input(self) -> str:
        """The input, or the model's tensor that the input copies (the converter makes such copies)."""
        copied = any(self.input == f"{word}{RESHAPED}" for word in self.config_names)
        return self.input.removesuffix(RESHAPED) if copied else self.input

    @property
    def shown_input(self) -> str:
        """The input for display: the words of ``tensor_arrays``, and the tensor if its name differs."""
        words = ", ".join(self.config_names)
        return f"{words} ({self.input})" if words not in ("", self.input) else self.input


@dataclass(frozen=True)
class Signs:
    """The figures of one convolution that the rules use; None if the required file was not given.

    limits  calibration range of its input.
    levels  number of the range's 256 8-bit levels that hold 99 % of the float values; ``narrow``: rule 2.
    row     row of the comparison for the tensor that it stores.
    after   worst row among the layers that it is the nearest convolution before.
    raised  whether its input is INT16 in the fixed model's dump; the comparison then does not show the effect of INT8.
    """

    limits: tuple[float, float] | None = None
    levels: int | None = None
    narrow: bool | None = None
    row: Row | None = None
    after: Row | None = None
    raised: bool = False

    @property
    def width(self) -> float:
        """The width of the input's range, max - min; 0 without a range."""
        return self.limits[1] - self.limits[0] if self.limits else 0.0

    @property
    def wide(self) -> bool:
        """Whether rule 1 applies."""
        return self.width > WIDE

    @property
    def spoilt(self) -> bool:
        """Whether rule 3 applies."""
        return self.after is not None and self.after.error > RMSE_OVER

    @property
    def arises_here(self) -> bool:
        """Whether at least half of the error that rule 3 uses arises after the layers before."""
        return self.after is not None and (self.after.rise >= self.after.error / 2)

    @property
    def fired(self) -> int:
        """The number of rules that apply."""
        return self.wide + bool(self.narrow) + self.spoilt


def convolutions(analysis: Analysis) -> list[Convolution]:
    """Return every convolution and fully connected operator with constant weights, in execution order."""
    graph, words = analysis.graph, RaisedInputs(analysis).words
    return [
        Convolution(
            node.output[0],
            sdk_name(graph, node),
            node.input[0],
            analysis.switch(node.input[0]),
            op.outputs[0],
            node.input[0] in analysis.pictures,
            words[node.input[0]],
        )
        for op in analysis.operators
        for node in op.nodes
        if is_convolution(graph, node)
    ]


def config_names(names: Iterable[str], convolutions: Iterable[Convolution]) -> tuple[str, ...]:
    """Return the words of ``tensor_arrays`` for first inputs, each once."""
    words = {conv.input: conv.config_names or (conv.input,) for conv in convolutions}
    return tuple(dict.fromkeys(word for name in names for word in words.get(name, (name,))))


def ranges_of_model(graph: Graph, ranges: Mapping[str, Range], source: str) -> dict[str, Range]:
    """Return the ranges by the model's own names. Raises ConfigError if they name no tensor of the model."""
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.output if name)]
    pairs = pair_ranges([*names, *graph.constants], ranges)
    if not pairs.keys() & set(names):
        raise ConfigError(
            f"{source}: no name in this file matches a layer of this model (names in the file: "
            f"{_first(ranges)}; in the model: {_first(names)}). Give the ranges of this model"
        )
    return {name: ranges[listed] for name, listed in pairs.items()}


def read_signs(
    analysis: Analysis,
    convolutions: list[Convolution],
    ranges: Mapping[str, Range],
    float_dump: Dump | None = None,
    comparison: Comparison | None = None,
    fixed_dump: Dump | None = None,
) -> dict[str, Signs]:
    """Return the signs of each convolution, by its name.

    ranges      by the model's names.
    comparison  of the fixed dump against the float dump.
    Raises ConfigError if the float dump has no input of a convolution.
    """
    spread = _spread(convolutions, ranges, float_dump) if float_dump is not None else {}
    raised = _int16(convolutions, fixed_dump) if fixed_dump is not None else frozenset()
    rows = {normalised(row.names[-1]): row for row in comparison.alike} if comparison else {}
    after = _worst_after(analysis.graph, rows) if rows else {}
    of_domain: dict[str, Range] = {}
    for name, limits in ranges.items():
        of_domain.setdefault(analysis.domain[name], limits)
    signs = {}
    for conv in convolutions:
        own = ranges.get(conv.input) or of_domain.get(analysis.domain[conv.input])
        values = spread.get(conv.input)
        signs[conv.name] = Signs(
            (own.low, own.high) if own else None,
            values.levels if values else None,
            values.wasteful if values else None,
            rows.get(normalised(conv.layer)),
            after.get(conv.name),
            conv.input in raised,
        )
    return signs


def _spread(convolutions: list[Convolution], ranges: Mapping[str, Range], dump: Dump) -> dict[str, Distribution]:
    """Return the distribution of the float values of the convolutions' inputs, by the model's names."""
    names = {record.name: record for record in layers(dump)}
    pairs = pair_ranges(dict.fromkeys(conv.input for conv in convolutions), dict.fromkeys(names))  # type: ignore[arg-type]
    if not pairs:
        raise ConfigError(
            f"{dump.path or 'the dump'}: no tensor is the input of a convolution of this model (dump: "
            f"{_first(names)}; model: {_first([conv.input for conv in convolutions])}). Give a dump "
            "of this model"
        )
    own_names = {dumped: name for name, dumped in pairs.items()}
    few = Dump([names[name] for name in own_names], path=dump.path)
    by_layer = {name: ranges[own] for name, own in own_names.items() if own in ranges}
    return {
        own_names[d.name]: d for d in distributions(with_scales(few, by_layer), by_layer) if isinstance(d, Distribution)
    }


def _int16(convolutions: list[Convolution], dump: Dump) -> frozenset[str]:
    """Return the inputs of convolutions that are INT16 in the dump of a fixed model."""
    inputs = dict.fromkeys(conv.input for conv in convolutions)
    pairs = pair_ranges(inputs, dict.fromkeys(dump.outputs))  # type: ignore[arg-type]
    quants = {name: dump.outputs[dumped].info.quant for name, dumped in pairs.items()}
    return frozenset(name for name, quant in quants.items() if quant is not None and quant.dtype == np.int16)


def _worst_after(graph: Graph, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return, by convolution, the worst row among the layers that it is the nearest convolution before.

    Rows of Softmax are left out, because the logits show the same error better.
    """
    nearest: dict[str, frozenset[str]] = {}
    worst: dict[str, Row] = {}
    for node in graph.nodes:
        before = frozenset().union(*(nearest.get(name, frozenset()) for name in node.input))
        sources = frozenset([node.output[0]]) if is_convolution(graph, node) else before
        for name in node.output:
            nearest[name] = sources
            row = rows.get(normalised(name))
            if row is None or node.op_type in ("Softmax", "LogSoftmax"):
                continue
            for conv in sources:
                if conv not in worst or row.error > worst[conv].error:
                    worst[conv] = row
    return worst


def _first(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
