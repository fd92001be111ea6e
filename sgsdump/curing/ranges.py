"""Ranges with room for what the calibration pictures do not show. They cannot stand in an ONNX file. Apart: a cure.

INT16  HEADROOM times as wide: half a bit of sixteen, and nothing above the calibrated maximum is clipped.
UINT8  as wide as costs little: rounding a tensor's values adds noise N (``equalisation.py``, as it counts at the
       network's outputs), a range m times as wide m² N. Every one of the T tensors that convolutions read may add an
       equal part of SHARE of the whole noise:

    m² = 1 + SHARE · (Σ N) / (T N)          between 1 and MOST

So a first layer, whose rounding is most of the error and whose range every picture fills, stays as it is, and a late
one, whose rounding nobody sees and whose range rare pictures exceed, gets room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.quant_file import quant_params
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from sgsdump.curing.equalisation import Layer, Noise
    from sgsdump.models.model import Model
    from sgsdump.sidecars.quant_param_entries import QuantParam

HEADROOM = 1.5
SHARE, MOST = 0.3, 2.0


def margins(layers: Sequence[Layer], noise: Noise, factors: np.ndarray, share: float = SHARE) -> dict[str, float]:
    """By tensor that convolutions read, how much wider its range becomes. ``factors``: of the classes, as scaled;
    ``share``: in place of SHARE."""
    rounding: dict[str, float] = {}
    whole = 0.0
    for layer in layers:
        inputs, *others = noise.parts(layer, factors)
        name = layer.node.input[0]
        rounding[name] = rounding.get(name, 0.0) + inputs
        whole += inputs + sum(others)
    if not whole > 0:
        return {}
    allowed = share * whole / len(rounding)
    return {
        name: float(np.sqrt(min(1 + allowed / added, MOST**2))) if added > 0 else MOST if share else 1.0
        for name, added in rounding.items()
    }


def widened(model: Model, ranges: Mapping[str, Range], wider: Mapping[str, float]) -> dict[str, Range]:
    """The ranges of a model with room: those of UINT8 ``wider`` times, those of INT16 HEADROOM times. Constants and the
    network's inputs keep theirs."""
    graph = Graph(model.proto)
    kept = {*graph.constants, *graph.inputs}
    found = {}
    for name, measured in ranges.items():
        if name in kept or measured.uncut is not None:
            found[name] = measured
            continue
        factor, wide = wider.get(name, 1.0), measured.wide or measured
        room = Range(wide.min * HEADROOM, wide.max * HEADROOM)
        found[name] = Range(measured.min * factor, measured.max * factor, measured.bit, room)
    return found


def params_of(fixed: Model) -> list[QuantParam]:
    """The entries of a fixed model's quant file, but for the weights, whose ranges the level finds in the weights."""
    facts = read_facts(fixed)
    weights = {stored.name for stored in facts.weights.values()} if facts else set()
    return [param for param in quant_params(fixed) if param.name not in weights]
