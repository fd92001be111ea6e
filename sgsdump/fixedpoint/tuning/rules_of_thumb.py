"""The SDK manual's rules for INT16 convolution inputs, applied to the results of a calibration and a comparison.

1. The range of the convolution's input, max - min, is over 30.
2. That range is wide and the float model's values are concentrated in a small part of it.
3. A layer's RMSE (float against fixed model) is over 0.5: the inputs of the convolutions before it.
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
    """One convolution: what it is called by (its node's output), its operator type, its first input, that input's
    domain, the tensor its operator stores, whether it reads the picture (always 8 bits), and the words of
    ``tensor_arrays`` that raise its input (none: the input's own name)."""

    name: str
    op_type: str
    input: str
    domain: str
    layer: str
    reads_picture: bool
    config_names: tuple[str, ...] = ()

    @property
    def known_input(self) -> str:
        """The input, or where it is a copy that the converter makes of a tensor of the model that tensor."""
        copied = any(self.input == f"{word}{RESHAPED}" for word in self.config_names)
        return self.input.removesuffix(RESHAPED) if copied else self.input

    @property
    def shown_input(self) -> str:
        """The input for a person: the words to write, and the tensor where that is another."""
        words = ", ".join(self.config_names)
        return f"{words} ({self.input})" if words not in ("", self.input) else self.input


@dataclass(frozen=True)
class Signs:
    """The signs of one convolution that the rules see; None where the file they need was not given.

    limits  calibrated range of its input; ``levels`` how many of an 8-bit quantiser's 256 levels of that range hold
            99 % of the float values; ``narrow`` is rule 2.
    row     the comparison's row of what it stores; ``after`` the worst row it is the nearest convolution before.
    raised  whether its input is INT16 in the fixed model's dump: then the comparison does not show what 8 bits do.
    """

    limits: tuple[float, float] | None = None
    levels: int | None = None
    narrow: bool | None = None
    row: Row | None = None
    after: Row | None = None
    raised: bool = False

    @property
    def width(self) -> float:
        """max - min of the input's range, 0 without one."""
        return self.limits[1] - self.limits[0] if self.limits else 0.0

    @property
    def wide(self) -> bool:
        """Rule 1."""
        return self.width > WIDE

    @property
    def spoilt(self) -> bool:
        """Rule 3."""
        return self.after is not None and self.after.error > RMSE_OVER

    @property
    def arises_here(self) -> bool:
        """Whether most of the error that rule 3 sees is not there yet in the layers before."""
        return self.after is not None and (self.after.rise >= self.after.error / 2)

    @property
    def fired(self) -> int:
        """How many rules say INT16."""
        return self.wide + bool(self.narrow) + self.spoilt


def convolutions(analysis: Analysis) -> list[Convolution]:
    """Every convolution and fully connected operator with constant weights, in execution order."""
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
    """The words to write into ``tensor_arrays`` for first inputs, each once."""
    words = {conv.input: conv.config_names or (conv.input,) for conv in convolutions}
    return tuple(dict.fromkeys(word for name in names for word in words.get(name, (name,))))


def ranges_of_model(graph: Graph, ranges: Mapping[str, Range], source: str) -> dict[str, Range]:
    """Return the ranges by the model's own names. Raises ConfigError when no tensor of the model is among them."""
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.output if name)]
    pairs = pair_ranges([*names, *graph.constants], ranges)
    if not pairs.keys() & set(names):
        raise ConfigError(
            f"{source} names no layer of this model (it has {_first(ranges)}; the model has {_first(names)}); "
            f"was it calibrated on another one?"
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
    """Convolution's name -> what the rules see of it; ``ranges`` are by the model's names, ``comparison`` is of the
    fixed dump against the float dump.

    Raises ConfigError when the float dump holds no convolution's input.
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
    """How the float values of the convolutions' inputs lie in their ranges, by the model's names."""
    names = {record.name: record for record in layers(dump)}
    pairs = pair_ranges(dict.fromkeys(conv.input for conv in convolutions), dict.fromkeys(names))  # type: ignore[arg-type]
    if not pairs:
        raise ConfigError(
            f"{dump.path or 'the dump'} holds no convolution's input of this model (it has {_first(names)}; the model "
            f"reads {_first([conv.input for conv in convolutions])}); is it a dump of another one?"
        )
    own_names = {dumped: name for name, dumped in pairs.items()}
    few = Dump([names[name] for name in own_names], path=dump.path)
    by_layer = {name: ranges[own] for name, own in own_names.items() if own in ranges}
    return {
        own_names[d.name]: d for d in distributions(with_scales(few, by_layer), by_layer) if isinstance(d, Distribution)
    }


def _int16(convolutions: list[Convolution], dump: Dump) -> frozenset[str]:
    """Inputs of convolutions that the dump of a fixed model holds as INT16."""
    inputs = dict.fromkeys(conv.input for conv in convolutions)
    pairs = pair_ranges(inputs, dict.fromkeys(dump.outputs))  # type: ignore[arg-type]
    quants = {name: dump.outputs[dumped].info.quant for name, dumped in pairs.items()}
    return frozenset(name for name, quant in quants.items() if quant is not None and quant.dtype == np.int16)


def _worst_after(graph: Graph, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Convolution -> the row of the largest error among the layers it is the nearest convolution before.

    A Softmax's row is left out: its input, the logits, shows the same error without hiding it.
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
