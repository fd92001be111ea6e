"""The dump that ``sgsdump histogram`` draws, and the calibrated ranges of its layers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgsdump.commands.options import opened
from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump
    from sgsdump.tensors.types import Range


def opened_with_ranges(args: argparse.Namespace) -> tuple[Dump, dict[str, Range], set[str]]:
    """The dump, the ranges by layer, and the names of the ranges of no layer.

    Raises ConfigError for ranges that are none, or of another network.
    """
    from sgsdump.comparison.distribution import layers, pair_ranges
    from sgsdump.sidecars.tensor_min_max import read_ranges

    ranges = read_ranges(args.ranges) if args.ranges else {}
    if args.ranges and not ranges:
        raise ConfigError(f"{args.ranges} holds no range; calibrate again, or name another file")
    (dump,) = opened(args, args.dump)
    names = [record.name for record in layers(dump)]
    pairs = pair_ranges(names, ranges)
    if args.ranges and not pairs:
        raise ConfigError(
            f"no layer of {args.dump} has a range in {args.ranges}; are both of the same network? "
            f"(layers: {_first(names)}; ranges: {_first(list(ranges))})"
        )
    by_layer = {name: ranges[pairs[name]] for name in pairs}
    return with_what_is_known(args, dump, by_layer), by_layer, ranges.keys() - pairs.values()


def with_what_is_known(args: argparse.Namespace, dump: Dump, ranges: Mapping[str, Range]) -> Dump:
    """The dump, unpadded and dequantised as far as its layers' ranges and ``--parse-net`` tell."""
    from sgsdump.dumps.formats.sigmastar.side_files import with_side_files
    from sgsdump.sidecars import parse_net

    return with_side_files(dump, ranges, parse_net.read(args.parse_net) if args.parse_net else None)


def _first(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
