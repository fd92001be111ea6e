"""The records that ``sgsdump convert`` writes: those of the dump, chosen and converted as the options say."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import opened

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump, Record


def converted(args: argparse.Namespace) -> tuple[Dump, list[Record]]:
    """The dump, and the records to write; no value is read. Raises ConfigError, FormatError and ValuesError."""
    from sgsdump.dumps.conversion import as_float32, in_layout, with_shapes
    from sgsdump.dumps.dump import selected
    from sgsdump.tensors.device import is_device

    dump = _with_net(opened(args, args.dump)[0], args.parse_net)
    records = with_shapes(selected(dump.records, args.select), args.original_shape)
    if args.dtype and is_device(args.layout):
        # The scales of channels belong to the logical tensor, and the blocks' size to the type that is written.
        records = [as_float32(in_layout(record, "logical")) for record in records]
    if args.layout:
        records = [in_layout(record, args.layout) for record in records]
    if args.dtype:
        records = list(map(as_float32, records))
    return dump, records


def _with_net(dump: Dump, path: Path | None) -> Dump:
    """The dump with what a parse_net text adds to it."""
    from sgsdump.dumps.formats.sigmastar.side_files import unpadded, with_net_scales
    from sgsdump.sidecars import parse_net

    if path is None:
        return dump
    net = parse_net.read(path)
    return with_net_scales(unpadded(dump, net), net)
