"""A dump as the small files beside its model describe it: shapes, the way out of padded buffers, and true scales."""

from __future__ import annotations

from functools import partial

from sgsdump.dumps.dump import Dump, Record, with_tensors
from sgsdump.dumps.formats.sigmastar.net_scales import scales_of
from sgsdump.dumps.formats.sigmastar.true_scales import Ranges, refuse, rescaled, true_scales, with_scales
from sgsdump.dumps.formats.sigmastar.unpadded import unpadded
from sgsdump.errors import SgsdumpError
from sgsdump.sidecars.parse_net import ParseNet
from sgsdump.tensors.sdk_buffers import has_padded_channels, is_row_major
from sgsdump.tensors.tensor import Tensor


def with_side_files(dump: Dump, ranges: Ranges | None = None, net: ParseNet | None = None) -> Dump:
    """The dump as the calibrated ranges and the parse_net text of its model describe it; None is no such file.

    It is unpadded, and its integers have the exact scale that parse_net's ranges give, else the calibrated ones.
    A tensor for which neither gives one raises ValuesError with the reason when its values are read.
    """
    if net is None:
        dump = without_blocks(dump)
        return dump if ranges is None else with_scales(dump, ranges)
    dump = unpadded(dump, net)
    quants, refused = ({}, {}) if ranges is None else true_scales(dump, ranges)
    net_found, net_refused = scales_of(dump, net)
    quants = quants | net_found
    return rescaled(dump, quants, {n: why for n, why in (refused | net_refused).items() if n not in quants})


def without_blocks(dump: Dump) -> Dump:
    """The dump, but of a dump of padded buffers those tensors raise ValuesError when they are read that may lie in
    blocks of channels and have the size of their shape: nothing in the dump tells their order."""
    integers = [r for r in dump.records if r.tensor.info.dtype.kind in "iu" and r.tensor.info.shape and not r.constant]
    if not any(map(_has_padded_channels, integers)):
        return dump
    unsure = {
        id(r) for r in integers if not is_row_major("NHWX", r.tensor.info.shape or (), r.tensor.info.dtype.itemsize)
    }

    def tensor_of(record: Record) -> Tensor:
        if id(record) not in unsure or len(record.tensor.info.shape or ()) != 4:
            return record.tensor
        why = f"tensor {record.name!r} is a padded hardware buffer, whose order the dump does not tell"
        return Tensor(record.tensor.info, partial(refuse, f"{why}; give --parse-net, or dump it with eliminateGarbage"))

    return with_tensors(dump, tensor_of)


def _has_padded_channels(record: Record) -> bool:
    """Whether a payload has padded channels; a tensor without values is reported when it is read."""
    try:
        return has_padded_channels(record.tensor.raw(), record.tensor.info.shape or ())
    except SgsdumpError:
        return False
