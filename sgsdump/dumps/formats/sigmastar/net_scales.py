"""The true scales of an integer dump, from what a parse_net text says of its fixed model.

Scales come from parse_net's ranges by the rules of ``true_scales``, never from its Scaler, which has six decimals and
is 41 % off for a softmax's output.
"""

from __future__ import annotations

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.formats.sigmastar.net_tensors import net_tensor
from sgsdump.dumps.formats.sigmastar.true_scales import Ranges, rescaled, true_scales
from sgsdump.sidecars.parse_net import ParseNet
from sgsdump.sidecars.tensor_min_max import Range
from sgsdump.tensors.tensor import Quant


def scales_of(dump: Dump, net: ParseNet) -> tuple[dict[str, Quant], dict[str, str]]:
    """As ``true_scales``, from parse_net's ranges: exact quantisation by name, and by name why there is none.

    A range is used only for a tensor that has the same element type in both: of two conversions of one network the
    ranges differ by less than the header's six decimals show.
    """
    quants, refused = true_scales(dump, _ranges(dump, net))
    for record in dump.records:
        facts = net_tensor(record, net)
        if record.name not in refused:
            continue
        if record.name in net.ambiguous:
            refused[record.name] = f"{net.path.name} lists different tensors of this name"
        elif facts is None:
            refused[record.name] = f"{net.path.name} does not list it"
        elif facts.dtype != record.tensor.info.dtype:
            refused[record.name] = (
                f"{net.path.name} has it as {facts.type_name}, the dump as {record.tensor.info.dtype}: "
                f"they are of different conversions"
            )
    return quants, refused


def with_net_scales(dump: Dump, net: ParseNet) -> Dump:
    """The dump with ``scales_of`` in its tensors; those refused keep the inexact scale of their header."""
    return rescaled(dump, scales_of(dump, net)[0])


def _ranges(dump: Dump, net: ParseNet) -> Ranges:
    ranges: dict[str, Range] = {}
    for record in dump.records:
        facts = net_tensor(record, net)
        if facts is None or record.constant or facts.dtype != record.tensor.info.dtype:
            continue
        if facts.low is not None and facts.high is not None and facts.low <= facts.high:
            ranges[record.name] = Range.of(facts.low, facts.high)
    return ranges
