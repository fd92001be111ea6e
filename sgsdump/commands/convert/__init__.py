"""Write a dump in another format: any that is read, to any that can be written; or an ATB topology as ONNX.

The target is --to, or what the ending of OUT says: .bin, .txt, .npz, .safetensors; a folder of .npy files where there
is none. sigmastar_bin and sigmastar_text have the header lines of the newer SDK, sigmastar_bin_old and
sigmastar_text_old those of the older one. Before it writes, it lists what the target cannot hold, a line for each
kind; with --strict it then writes nothing. Tensors go through one at a time. An existing folder is moved aside under
its date. Exit status 1 when tensors had to be left out, 2 on trouble.

--layout logical undoes the device's layouts (NC1HWC0, FRACTAL_NZ …) where the original shape is known: from the dump,
or given with --original-shape. NCHW, NHWC and HWCN also turn 4-D tensors; NC1HWC0, NDC1HWC0, FRACTAL_Z and FRACTAL_NZ
make a device's blocks of tensors, padded with zeros. --dtype float32 writes the numbers that integers and short floats
mean.

With --scheduler the workers of a Dask cluster (pip install 'sgsdump[cluster]') read the dump and make the values, and
this machine writes them. It pays where making values takes longer than sending them: text, devices' layouts.

examples:
  sgsdump convert sigma_outtensor_dump.bin layers.npz
  sgsdump convert ascend_dumps/ layers/ --layout logical --dtype float32
  sgsdump convert atb_dump/ layers/ --layout logical --original-shape '*/output.0=3,10,20'
  sgsdump convert layers.npz weights/ --select '*weight*' --layout FRACTAL_Z
  sgsdump convert layers.npz old_outtensor_dump.bin --to sigmastar_bin_old --select 'conv*' --select 'fc?'
  sgsdump convert padded.bin floats.npz --parse-net parse_net.txt --dtype float32
  sgsdump convert atb_dump/ tensors.safetensors
  sgsdump convert layer.json layer.onnx --level 1
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.commands.options import add_parse_net, add_run
from sgsdump.commands.shared_files import add_scheduler

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Record

NAMES = 3
_HEAD_BYTES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="IN", help="a dump of any known format, or an ATB topology (.json)")
    parser.add_argument("output", type=Path, metavar="OUT", help="file or folder to write")
    parser.add_argument("--to", metavar="FORMAT", help="the format of OUT, where its ending does not say")
    parser.add_argument(
        "--select", action="append", default=[], metavar="PATTERN", help="only tensors of such names (* ? [ab])"
    )
    parser.add_argument(
        "--layout",
        choices=["logical", "NCHW", "NHWC", "HWCN", "NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"],
        help="bring the tensors to a layout",
    )
    parser.add_argument(
        "--original-shape",
        type=_original_shape,
        action="append",
        default=[],
        metavar="PATTERN=SHAPE",
        help="the logical shape (3,10,20 or 3x10x20) of tensors in a device's layout, where the dump does not tell it; "
        "may be given several times",
    )
    parser.add_argument("--dtype", choices=["float32"], help="write the numbers that the stored values mean")
    add_parse_net(parser)
    add_run(parser)
    add_scheduler(parser, "make the values")
    parser.add_argument("--strict", action="store_true", help="write nothing when the target cannot hold everything")
    parser.add_argument("--level", type=int, metavar="N", help="topology: depth of the graph, 0 is the whole as one")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="topology: the operation CSV, for shapes")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.convert.on_cluster import loading_on_cluster
    from sgsdump.commands.convert.records import converted
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.dumps.conversion import load, save, stays
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.targets import common_form, target_of
    from sgsdump.dumps.trees import tree_of
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_not_around, check_outputs
    from sgsdump.files.escaping import for_terminal

    read = [tree_of(args.dump), args.parse_net, args.csv]
    check_outputs([args.output], read)
    check_not_around(args.output, read)
    if _is_topology(args.dump, args.output):
        return _topology(args)
    if args.level is not None or args.csv:
        raise ConfigError("--level and --csv belong to an ATB topology: convert layer.json layer.onnx")
    dump, records = converted(args)
    for note in dump.notes:
        print(for_terminal(f"note: {note}"))
    if args.layout:
        reason = f"stay in their layout: it, or the original shape, is not known, or cannot be {args.layout}"
        _tell(f"tensors {reason}", [record for record in records if stays(record, args.layout)])
    if args.dtype:
        _tell(f"tensors do not become {args.dtype}: no numbers, or of unknown true scale", _not_of(records, args.dtype))
    form: tuple[str, Any] = (dump.format, dump.variant)
    if args.layout or args.dtype or args.parse_net or args.original_shape:
        form = ("", None)
    elif len(records) != len(dump.records):
        form = common_form([dump])
    target = target_of(args.output, args.to, Dump(records, *form))
    loading = loading_on_cluster(args, records) if args.scheduler else load
    saved = save(records, args.output, target, str(args.dump), TERMINAL, args.strict, loading)
    print(f"{args.output}: {saved.written} tensors, {target.format}{saved}")
    return 1 if saved.left_out else 0


def _original_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``conv*=1,3,8,8``: a pattern of names and a shape."""
    pattern, sign, shape = text.rpartition("=")
    sizes = shape.replace("x", ",").split(",")
    if not sign or not pattern or not all(re.fullmatch("[1-9][0-9]{0,11}", size) for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATTERN=SHAPE, such as 'conv*=1,3,8,8'")
    return pattern, tuple(map(int, sizes))


def _is_topology(source: Path, target: Path) -> bool:
    from sgsdump.models.atb.topology import recognises

    if target.suffix != ".onnx":
        return False
    from sgsdump.files.bounded_read import open_file

    try:
        with open_file(source) as file:
            return recognises(source, file.read(_HEAD_BYTES))
    except OSError:
        return False


def _topology(args: argparse.Namespace) -> int:
    from sgsdump.errors import ConfigError
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.atb.topology import convert_topology

    for_dumps = args.to, args.select, args.layout, args.dtype, args.parse_net, args.original_shape, args.scheduler
    if any(for_dumps):
        raise ConfigError(f"{args.dump} is a topology, not a dump: only --level and --csv are for it")
    for note in convert_topology(args.dump, args.output, -1 if args.level is None else args.level, args.csv):
        print(for_terminal(f"note: {note}"))
    print(f"{args.output}: the topology as ONNX")
    return 0


def _not_of(records: Sequence[Record], dtype: str) -> list[Record]:
    return [record for record in records if record.tensor.info.dtype != dtype]


def _tell(what: str, records: Sequence[Record]) -> None:
    if records:
        shown = ", ".join(repr(record.name) for record in records[:NAMES])
        print(f"{len(records)} {what}: {shown}{', …' if len(records) > NAMES else ''}")
