"""Write a dump in another format, or an SDK model file (.sim, .img) or ATB topology as ONNX.

examples:
  sgsdump convert sigma_outtensor_dump.bin layers.npz
  sgsdump convert ascend_dumps/ layers/ --layout logical --dtype float32
  sgsdump convert layers.npz old_outtensor_dump.bin --to sigmastar_bin_old --select 'conv*'
  sgsdump convert fixed.sim fixed.onnx
  sgsdump convert layer.json layer.onnx --level 1

the target:
  The ending of OUT selects the format: .bin, .txt, .npz, .safetensors; without
  an ending, a folder of .npy files. --to selects another format: sigmastar_bin
  and sigmastar_text have the header of the newer SDK, sigmastar_bin_old and
  sigmastar_text_old the header of the older SDK. An existing folder is
  renamed. The graph beside a dump is copied as OUT.graph.onnx, but not into a
  folder of .npy files.

data that the target format cannot store:
  Before writing, convert lists the data that the target format cannot store,
  with one line per kind of loss. With --strict, nothing is written in this
  case. The exit status is 1 if tensors were left out, 2 on errors.

layouts and types:
  --layout logical undoes the layouts of a device (NC1HWC0, FRACTAL_NZ, ...) if
  the dump or --original-shape gives the original shape. NCHW, NHWC and HWCN
  also transpose 4-D tensors. NC1HWC0, NDC1HWC0, FRACTAL_Z and FRACTAL_NZ write
  the block layout of a device, padded with zeros. --dtype float32 dequantises
  integers, and converts narrower floats to float32.

the SDK's model files (.sim, .img):
  float.sim becomes a float model with the tensor names of the SDK's dumps.
  fixed.sim and .img become a fixed model, which simulate runs with the SDK's
  integers. If OUT is a .txt file, the tensors of fixed.sim are written as text,
  as the SDK's parse_net prints them.

a cluster (--scheduler):
  The workers of a Dask cluster (pip install 'sgsdump[cluster]') read the dump
  and compute the values; this machine writes OUT. A cluster speeds up text
  formats and device layouts.

more examples:
  sgsdump convert atb_dump/ layers/ --layout logical --original-shape '*/output.0=3,10,20'
  sgsdump convert layers.npz weights/ --select '*weight*' --layout FRACTAL_Z
  sgsdump convert padded.bin floats.npz --parse-net parse_net.txt --dtype float32
  sgsdump convert atb_dump/ tensors.safetensors
  sgsdump convert output/Result_0 layers.npz --raw-dtype float32 --raw-shape net.onnx
  sgsdump convert layers.npz layers.mine --writer my_writer.py
  sgsdump convert float.sim net.onnx
  sgsdump convert fixed.sim parse_net.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.commands.opening import opened
from sgsdump.commands.options import (
    Modes,
    Reading,
    add_csv,
    add_parse_net,
    add_raw,
    add_readers,
    add_run,
    add_scheduler,
    add_select,
    add_to,
    pattern_and_shape,
    record,
)
from sgsdump.commands.shared_files import absolute, on_this_worker, record_at, shared
from sgsdump.commands.terminal import TERMINAL, Terminal, print_lines
from sgsdump.errors import ConfigError, SgsdumpError

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.conversion import Loading
    from sgsdump.dumps.dump import Dump, Record

RARE = ("--rank", "--files", "--scheduler")
NAMES = 3
_HEAD_BYTES = 4096
DUMP, TOPOLOGY, MODEL = "a dump", "a topology", "a model file"
MODES = Modes(
    honoured={
        **dict.fromkeys(["dump", "output"], (DUMP, TOPOLOGY, MODEL)),
        **dict.fromkeys(
            (
                "to writer strict select step rank parse_net raw_dtype raw_shape reader files layout original_shape "
                "dtype scheduler"
            ).split(),
            (DUMP,),
        ),
        **dict.fromkeys(["level", "csv"], (TOPOLOGY,)),
    },
    refusals={
        DUMP: "belongs to an ATB topology: convert layer.json layer.onnx",
        TOPOLOGY: "is for a dump, but this is a topology, which takes only --level and --csv",
        MODEL: "is for a dump, but this is a model file; omit it",
    },
    spelled={},
)


@dataclass(frozen=True)
class Conversion:
    """The dump and the records to write, with layout and dtype."""

    dump: Path
    reading: Reading
    select: Sequence[str]
    layout: str | None
    original_shape: Sequence[tuple[str, tuple[int, ...]]]
    dtype: str | None

    def records(self) -> tuple[Dump, list[Record]]:
        """Return the dump and the records to write, without reading values.

        Raises ConfigError, FormatError and ValuesError.
        """
        from sgsdump.dumps.conversion import as_float32, in_layout, with_shapes
        from sgsdump.dumps.dump import selected
        from sgsdump.tensors.device import is_device

        dump = _with_net(opened(self.reading, self.dump)[0], self.reading.parse_net)
        records = with_shapes(selected(dump.records, self.select), self.original_shape)
        if self.dtype and is_device(self.layout):
            # Channel scales belong to the logical tensor; the block size depends on the written type.
            records = [as_float32(in_layout(record, "logical")) for record in records]
        if self.layout:
            records = [in_layout(record, self.layout) for record in records]
        if self.dtype:
            records = list(map(as_float32, records))
        return dump, records


@dataclass(frozen=True)
class Options:
    """The options; ``given`` has the names of the options that the user gave."""

    conversion: Conversion
    output: Path
    to: str | None
    writer: str | None
    strict: bool
    scheduler: str | None
    level: int | None
    csv: Path | None
    given: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dump", type=Path, metavar="IN", help="dump in any known format, SDK model file, or ATB topology (.json)"
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="file or folder to write")
    target = parser.add_argument_group("target")
    add_to(target)
    target.add_argument(
        "--writer",
        metavar="FILE.py[:FUNCTION]",
        help=(
            "Python file with your own writer, a function write(path, tensors); tensors yields (name, array, "
            "attributes)"
        ),
    )
    target.add_argument(
        "--strict", action="store_true", help="write nothing if the target format cannot store all data of the dump"
    )
    source = parser.add_argument_group("input dump")
    add_select(source)
    add_run(source)
    add_parse_net(source)
    add_raw(source)
    add_readers(source)
    form = parser.add_argument_group("layout and type")
    form.add_argument(
        "--layout",
        choices=["logical", "NCHW", "NHWC", "HWCN", "NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"],
        help="layout of the written tensors; logical converts device layouts to the logical layout",
    )
    form.add_argument(
        "--original-shape",
        type=pattern_and_shape,
        action="append",
        default=[],
        metavar="PATTERN=SHAPE",
        help=(
            "logical shape, such as 3,10,20, of tensors in a device layout; needed if the dump does not "
            "contain this shape; may be repeated"
        ),
    )
    form.add_argument(
        "--dtype",
        choices=["float32"],
        help=("convert all values to float32: dequantise integers, and widen narrower floats such as float16"),
    )
    add_scheduler(form, "compute the values")
    topology = parser.add_argument_group("ATB topology")
    topology.add_argument(
        "--level",
        type=int,
        metavar="N",
        help="number of nested levels to expand in the graph; 0 gives a single node (default: all levels)",
    )
    add_csv(topology, "msit's operation CSV, from which types and shapes are read")


def run(args: argparse.Namespace) -> int:
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import check_not_around
    from sgsdump.models.model import is_listed

    reading = record(Reading, args, ranges=None)
    options = record(Options, args, conversion=record(Conversion, args, reading=reading), given=MODES.given(args))
    models = [shape for shape in args.raw_shape if isinstance(shape, Path)]
    read = [tree_of(args.dump), args.parse_net, args.csv, *models]
    check_not_around(args.output, read)
    mode = MODEL if is_listed(args.dump) else TOPOLOGY if _is_topology(args.dump, args.output) else DUMP
    MODES.check(mode, options.given)
    return {DUMP: _convert, TOPOLOGY: _convert_topology, MODEL: _convert_model}[mode](options)


def _convert(options: Options) -> int:
    from sgsdump.dumps.conversion import load, save, stays
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.graph_file import graph_of, save_graph
    from sgsdump.dumps.targets import common_form, target_of
    from sgsdump.files.escaping import for_terminal

    conversion, output = options.conversion, options.output
    layout, dtype = conversion.layout, conversion.dtype
    dump, records = conversion.records()
    print_lines(dump.notes, "note: ")
    if layout:
        reason = f"keep their layout: the layout or the original shape is unknown, or cannot become {layout}"
        _tell(f"tensors {reason}", [record for record in records if stays(record, layout)])
    if dtype:
        others = [record for record in records if record.tensor.info.dtype != dtype]
        _tell(f"tensors are not converted to {dtype}: not numeric, or the scale is unknown", others)
    if options.writer:
        return _convert_with(options.writer, options, records)
    form: tuple[str, Any] = (dump.format, dump.variant)
    if layout or dtype or conversion.reading.parse_net or conversion.original_shape:
        form = ("", None)
    elif len(records) != len(dump.records):
        form = common_form([dump])
    target = target_of(output, options.to, Dump(records, *form))
    loading = _loading_on_cluster(conversion, records, options.scheduler) if options.scheduler else load
    graph = None if dump.path is None else graph_of(dump.path)
    saved = save(records, output, target, TERMINAL, options.strict, loading)
    print(f"{output}: {saved.written} tensors, {target.format}{saved}")
    if graph is not None and (why := save_graph(graph, output)):
        print(for_terminal(f"note: {why}"))
    return 1 if saved.left_out else 0


def _convert_with(writer: str, options: Options, records: list[Record]) -> int:
    """Let the user's writer write the records."""
    from sgsdump.dumps.conversion import readable, reasons
    from sgsdump.dumps.own_reader import load_function, write_with
    from sgsdump.progress import each

    for name, given in (("--to", options.to), ("--strict", options.strict), ("--scheduler", options.scheduler)):
        if given:
            raise ConfigError(f"{name} applies to sgsdump's formats, not to --writer; omit one of them")
    function, left_out = load_function(writer, "writer"), list[tuple[str, str]]()
    with_values = [record for record in records if record.tensor.statistics is None]
    left_out += [(record.name, "only statistics were dumped") for record in records if record not in with_values]
    loaded = readable(each(TERMINAL, with_values, "write", "tensor", len(with_values)), left_out)
    count = write_with(function, loaded, options.output)
    print_lines(reasons(left_out))
    print(f"{options.output}: {count} tensors, written by {writer}")
    return 1 if left_out else 0


def _convert_model(options: Options) -> int:
    """Write an SDK model file as an ONNX model, or list its tensors as text. Raises ConfigError for other targets."""
    from sgsdump.files.atomic_write import replace_text, replacing
    from sgsdump.models.model import net_text_of, open_model

    source, output = options.conversion.dump, options.output
    if output.suffix == ".txt":
        replace_text(output, net_text_of(source))
        print(f"{output}: the tensors of {source}, as parse_net prints them")
        return 0
    if output.suffix != ".onnx":
        raise ConfigError(
            f"{source} is a model; convert writes models only as .onnx (fixed.sim also as .txt). Use "
            f"the name {output.stem}.onnx"
        )
    proto = open_model(source).proto
    with replacing(output) as file:
        file.write(proto.SerializeToString())
    print(f"{output}: {len(proto.graph.node)} nodes, {output.stat().st_size:,} bytes")
    return 0


def _convert_topology(options: Options) -> int:
    from sgsdump.models.atb.topology import convert_topology

    level = -1 if options.level is None else options.level
    print_lines(convert_topology(options.conversion.dump, options.output, level, options.csv), "note: ")
    print(f"{options.output}: the topology as ONNX")
    return 0


def _loading_on_cluster(conversion: Conversion, records: list[Record], scheduler: str) -> Loading:
    """Return the ``loading`` for ``save``: workers open the dump and compute the values of the records."""
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    everywhere = replace(conversion, dump=absolute(conversion.dump), reading=shared(conversion.reading))
    indexes = {id(record): (index, record.name) for index, record in enumerate(records)}

    def loading(selected: Iterable[Record]) -> Iterator[np.ndarray | SgsdumpError]:
        items = (indexes[id(record)] for record in selected)
        return run_tasks(_load_on_worker, (everywhere,), items, Workers(scheduler=scheduler), Terminal("stderr"))

    return loading


def _load_on_worker(conversion: Conversion) -> Callable[[tuple[int, str]], np.ndarray | SgsdumpError]:
    """Return a function from a record's index and name to its values or error; called once per worker thread."""
    from sgsdump.dumps.conversion import load

    _, records = on_this_worker(conversion.records)
    return lambda item: next(load([record_at(records, *item, conversion.dump)]))


def _with_net(dump: Dump, path: Path | None) -> Dump:
    """Return the dump, unpadded and with the scales of a parse_net text."""
    from sgsdump.dumps.formats.sigmastar.side_files import unpadded, with_net_scales
    from sgsdump.models.model import net_of

    if path is None:
        return dump
    net = net_of(path)
    return with_net_scales(unpadded(dump, net), net)


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


def _tell(message: str, records: Sequence[Record]) -> None:
    if records:
        shown = ", ".join(repr(record.name) for record in records[:NAMES])
        print(f"{len(records)} {message}: {shown}{', …' if len(records) > NAMES else ''}")
