"""List the tensors of a dump or of a model file, or print the values of one tensor.

examples:
  sgsdump show sigma_outtensor_dump.bin
  sgsdump show layers.npz conv1 '[0,0:2]'
  sgsdump show fixed.bin conv1 --against float.bin --worst 20
  sgsdump show ascend_dumps/ --select '*:output:*' --csv tensors.csv
  sgsdump show fixed.onnx --select '*relu*'

the list:
  One line per tensor: min, max, mean and l2norm of the finite values, and the
  counts of NaN, +Inf and -Inf. Narrow terminals get fewer columns. The exit
  status is 1 if a tensor is damaged.

trees of several runs (steps, ranks, graphs):
  The runs are listed. Select one with --step, --rank or
  TREE@step=3,rank=0,graph=NAME.

one tensor:
  NAME is the name of a tensor, or its line number in the list, counted from 0:
  #3 is the fourth line. OPERATIONS select a part, such as [0:2,3], or reorder
  the axes, such as (0,2,3,1). Separate operations with semicolons. Values are
  real numbers in the logical layout if the original shape is known; --stored
  shows the values of the file. If the graph of the model is beside the dump,
  the layers before and after NAME are shown too.

two dumps (--against):
  Shows the values of NAME that differ most: index, both values, error and
  relative error. Values that are NaN or Inf in only one dump come first.

fixed models:
  Lists the type, scale and zero point of each stored tensor in a fixed model
  that calibrate wrote, and the rule that decided the type.

the SDK's model files (.sim, .img):
  Lists operators with their options, and tensors with shape, type, format,
  scale, zero point, range, working memory and domain. With --against and
  another .sim file, show prints the tensors whose types, formats, scales or
  ranges differ. Reading .img files is experimental.

operators of a model (--operators):
  Accepts ONNX, a program of torch.export.save (.pt2), a graph text of
  DUMP_GE_GRAPH=3 (ge_proto_*.txt), the topology of a tree of sgsdump exec, or
  msprobe's task structure. Lists the operators with the names that --dump-layer
  takes. For a topology, the list also has the ids for sgsdump exec -ids.

more examples:
  sgsdump show ascend_dumps/ --step 3 --rank 0
  sgsdump show --operators ge_proto_00000001_graph_1.txt --select '*relu*'
  sgsdump show fixed.onnx --csv plan.csv
  sgsdump show fixed.sim
  sgsdump show fixed.sim --against other_fixed.sim
  sgsdump show output/Result_0 --raw-dtype float32
  sgsdump show layers.npz conv1 --operations '(0,2,3,1);[0,...,3]' --output part.npy
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.commands.opening import has_no_runs, opened
from sgsdump.commands.options import (
    Modes,
    Reading,
    add_csv,
    add_json,
    add_output,
    add_raw,
    add_readers,
    add_run,
    add_select,
    record,
)
from sgsdump.commands.terminal import TERMINAL, print_lines
from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.runs import Run
    from sgsdump.models.fixed_facts import FixedFacts
    from sgsdump.models.listing import ModelListing

RARE = ("--rank", "--raw-dtype", "--raw-shape", "--files", "--operations")
OPERATORS, PLAN, TENSORS, VALUES, WORST = "operators", "plan", "tensors", "values", "worst values"
FILE = "model file"
# Properties that `show A.sim --against B.sim` compares.
COMPARED = ("shape", "type", "format", "scale", "zero_point", "min", "max")
WORST_COUNT = 20
NAMED = 5
MODES = Modes(
    honoured={
        "dump": (OPERATORS, PLAN, FILE, TENSORS, VALUES, WORST),
        "operators": (OPERATORS,),
        "select": (OPERATORS, PLAN, FILE, TENSORS),
        **dict.fromkeys(["step", "rank", "raw_dtype", "raw_shape", "reader", "files"], (TENSORS, VALUES, WORST)),
        "json": (OPERATORS, PLAN, FILE, TENSORS, VALUES, WORST),
        "csv": (PLAN, FILE, TENSORS, VALUES, WORST),
        "name": (VALUES, WORST),
        **dict.fromkeys(["part", "operations", "stored", "all", "output"], (VALUES,)),
        "against": (FILE, WORST),
        "worst": (WORST,),
    },
    refusals={
        OPERATORS: "is for a dump, but --operators lists a model; omit one of them",
        PLAN: "is for a dump, but this is a fixed model, whose plan is listed; omit one of them",
        FILE: "is for a dump, but a model file is listed as a whole; omit it (--select PATTERN chooses names)",
        TENSORS: "belongs to one tensor; give its NAME too",
        VALUES: "is for the list; omit it or NAME",
        WORST: "cannot be combined with --against, which shows index and values; omit one of them",
    },
    spelled={"name": "NAME", "part": "OPERATIONS"},
)


@dataclass(frozen=True)
class Options:
    dump: Path
    name: str | None
    part: str | None
    select: Sequence[str]
    reading: Reading
    stored: bool
    all: bool
    against: Path | None
    worst: int | None
    csv: Path | None
    json: Path | None
    output: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="dump in any known format, or a model file")
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the values of this tensor")
    parser.add_argument(
        "part",
        nargs="?",
        metavar="OPERATIONS",
        help="part of the tensor to select, such as [0,0:2], or new order of its axes, such as (0,2,3,1)",
    )
    source = parser.add_argument_group("input dump")
    add_run(source)
    add_raw(source)
    add_readers(source)
    listing = parser.add_argument_group("list")
    add_select(listing)
    listing.add_argument("--operators", action="store_true", help="list the operators of a model")
    values = parser.add_argument_group("one tensor (NAME)")
    values.add_argument("--operations", metavar="OPERATIONS", help="same as the argument OPERATIONS")
    values.add_argument("--stored", action="store_true", help="print the values as stored in the file")
    values.add_argument("--all", action="store_true", help="print all values, even of large tensors")
    values.add_argument(
        "--against",
        type=Path,
        metavar="BENCHMARK",
        help=(
            "dump to compare with: show compares the tensor NAME in DUMP with the tensor NAME in BENCHMARK; for "
            "a .sim file, give another .sim file"
        ),
    )
    values.add_argument(
        "--worst", type=int, metavar="N", help=f"show the N values that differ most (default: {WORST_COUNT})"
    )
    add_output(values, "write the values as .npy, or as raw bytes (.bin)")
    files = parser.add_argument_group("output files")
    add_csv(files, "write the list, or the values, as CSV")
    add_json(files, "write the list, or the values, as JSON")


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together
    from sgsdump.models.model import listing_of

    given = MODES.given(args)
    if "part" in given and "operations" in given:
        raise ConfigError("give OPERATIONS once, after NAME or with --operations")
    reading = record(Reading, args, ranges=None, parse_net=None)
    options = record(Options, args, part=args.part or args.operations, reading=reading)
    with together():
        if args.operators:
            MODES.check(OPERATORS, given)
            return _show_operators(options)
        facts = _facts(options.dump)
        if facts is not None:
            MODES.check(PLAN, given)
            return _show_plan(facts, options)
        listing = listing_of(options.dump)
        if listing is not None:
            MODES.check(FILE, given)
            return _show_model(listing, options)
        return _show_dump(options, given)


def _show_dump(options: Options, given: tuple[str, ...]) -> int:
    from sgsdump.dumps.trees import list_runs, tree_of
    from sgsdump.files.atomic_write import check_outputs

    output, step, rank = options.output, options.reading.step, options.reading.rank
    read = [tree_of(path) for path in (options.dump, options.against) if path]
    check_outputs([options.csv, options.json, output], read)
    if output and output.suffix not in (".npy", ".bin"):
        raise ConfigError(
            f"-o {output}: values are written as .npy, or as raw bytes to .bin; use one of these extensions"
        )
    if options.against is not None or options.worst is not None:
        if options.against is None or options.name is None:
            raise ConfigError("--worst needs --against and one tensor: show DUMP NAME --against BENCHMARK --worst N")
        MODES.check(WORST, given)
        return _show_worst(options, options.against, options.name)
    if options.name is not None:
        MODES.check(VALUES, given)
        return _show_values(opened(options.reading, options.dump)[0], options, options.name)
    MODES.check(TENSORS, given)
    notes: list[str] = []
    is_single = has_no_runs(options.reading, options.dump)
    runs = [] if is_single else list_runs(options.dump, step, rank, notes)
    if len(runs) > 1 and not (options.csv or options.json or options.select):
        return _show_runs(runs, notes, options)
    return _show_tensors(opened(options.reading, options.dump)[0], options)


def _facts(path: Path) -> FixedFacts | None:
    """Return the facts stored in a fixed model; None for any other file."""
    if path.suffix != ".onnx" or not path.is_file():
        return None
    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.models.model import open_model

    return read_facts(open_model(path))


def _show_plan(facts: FixedFacts, options: Options) -> int:
    """List the planned type and scale of each tensor of a fixed model."""
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.reports.dump_tables import plan_csv, plan_json, plan_table, planned

    check_outputs([options.csv, options.json], [options.dump])
    rows = planned(facts, options.select)
    if options.csv:
        replace_text(options.csv, plan_csv(rows))
    if options.json:
        replace_text(options.json, plan_json(rows))
    print(for_terminal(plan_table(rows)), end="")
    print(f"{len(rows)} of {len(facts.tensors)} tensors, {sum(row.dtype == 'int16' for row in rows)} of them INT16")
    return 0


def _show_model(listing: ModelListing, options: Options) -> int:
    """List the contents of a model file, or its differences from another file."""
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.listing import differences
    from sgsdump.models.model import listing_of
    from sgsdump.reports import model_listing

    check_outputs([options.csv, options.json], [options.dump, *([options.against] if options.against else [])])
    listing = listing.selected(options.select)
    if options.against is not None:
        other = listing_of(options.against)
        if not options.against.exists():
            raise ConfigError(f"no such file: {options.against}")
        if other is None:
            raise ConfigError(f"{options.against} is not a model file that show can compare; give a .sim or .img file")
        if options.csv:
            raise ConfigError("--csv writes the list of one model only; to compare two models (--against), use --json")
        benchmark = other.selected(options.select)
        found = differences(listing, benchmark, COMPARED)
        if options.json:
            replace_text(options.json, model_listing.differences_json(found))
        compared = len({row["name"] for row in (*listing.tensors, *benchmark.tensors)})
        print(for_terminal(model_listing.differences_text(found, compared)), end="")
        return 0
    if options.csv:
        replace_text(options.csv, model_listing.listing_csv(listing))
    if options.json:
        replace_text(options.json, model_listing.listing_json(listing))
    print(for_terminal(model_listing.listing_text(listing)), end="")
    return 0


def _show_operators(options: Options) -> int:
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.operator_list import list_operators
    from sgsdump.reports.dump_tables import operators_json, operators_table, selected_operators

    check_outputs([options.json], [options.dump])
    graphs = selected_operators(list_operators(options.dump), options.select)
    if options.json:
        replace_text(options.json, operators_json(graphs))
    print(for_terminal(operators_table(graphs)), end="")
    return 0


def _show_runs(runs: Sequence[Run], notes: Sequence[str], options: Options) -> int:
    """List the runs of a tree."""
    from sgsdump.dumps.trees import how_to_choose_of
    from sgsdump.files.escaping import for_terminal
    from sgsdump.reports.dump_tables import runs_table

    print(for_terminal(runs_table(runs)), end="")
    reading = options.reading
    print(for_terminal(f"{len(runs)} runs; {how_to_choose_of(options.dump, runs, reading.step, reading.rank)}"))
    print_lines(notes, "note: ")
    return 0


def _show_tensors(dump: Dump, options: Options) -> int:
    from sgsdump.dumps.dump import selected
    from sgsdump.dumps.inventory import inventory
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.progress import each
    from sgsdump.reports.dump_tables import inventory_csv, inventory_json, inventory_table

    chosen = {id(record) for record in selected(dump.records, options.select)}
    places = [(number, record) for number, record in enumerate(dump.records) if id(record) in chosen]
    items = list(inventory(each(TERMINAL, places, "show", "tensor", len(places))))
    if options.csv:
        replace_text(options.csv, inventory_csv(items))
    if options.json:
        replace_text(options.json, inventory_json(items, dump.notes))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(for_terminal(inventory_table(items, width)), end="")
    among = f" of {len(dump.records)}" if options.select else ""
    print(f"{len(items)}{among} tensor{'' if len(items) == 1 else 's'}, {dump.format}")
    print_lines(dump.notes, "note: ")
    return 1 if any(item.content.damaged for item in items) else 0


def _show_values(dump: Dump, options: Options, name: str) -> int:
    from sgsdump.dumps.formats.ascend.overflow import StatusNote
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal, shown
    from sgsdump.files.json_yaml import json_text
    from sgsdump.reports.dump_values import values_csv, values_json, values_text
    from sgsdump.tensors.slicing import viewed

    record, note = _find(dump, name)
    of_bytes = options.stored or options.part or options.output or options.csv
    status = None if of_bytes else _status(record)
    if status is not None:
        text = json.dumps(status, indent=4) + "\n"
        if options.json:
            replace_text(options.json, json_text({"format": "sgsdump overflow", "version": 1, "status": status}))
        print(for_terminal(f"{shown(record.name)}: overflow status; --stored shows its bytes{note}"))
        notes = [note for note in dump.notes if isinstance(note, StatusNote) and note.tensor == record.name]
        print_lines(notes, "note: ")
        print(text, end="")
        return 0
    array, how = _array(record, options.stored)
    part = viewed(array, options.part or "")
    if options.csv:
        replace_text(options.csv, values_csv(part))
    if options.json:
        replace_text(options.json, values_json(part, record.name))
    if options.output:
        _write_array(options.output, part)
    print(for_terminal(f"{shown(record.name)}: {how}{note}"))
    if place := _place(dump, record.name):
        print(for_terminal(place))
    print(for_terminal(values_text(part, options.all)), end="")
    return 0


def _place(dump: Dump, name: str) -> str:
    """Return ``reads data, conv1.weight; read by relu1``, or "" if the graph of the model is unknown."""
    from sgsdump.comparison.dataflow import reads_of
    from sgsdump.errors import listed
    from sgsdump.files.escaping import shown

    reads = reads_of(dump)
    if name not in reads:
        return ""
    readers = [other for other, names in reads.items() if name in names]
    sources = listed([shown(source) for source in reads[name]], NAMED) or "nothing"
    return f"reads {sources}; " + (
        f"read by {listed(list(map(shown, readers)), NAMED)}" if readers else "no layer reads it"
    )


def _show_worst(options: Options, against: Path, name: str) -> int:
    """Show the values of one tensor that differ most between two dumps."""
    from sgsdump.comparison.worst_values import worst_values
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.reports.dump_values import worst_csv, worst_json, worst_text

    count = WORST_COUNT if options.worst is None else options.worst
    sample, benchmark = opened(options.reading, options.dump, against)
    worst = worst_values(sample, benchmark, name, count)
    if options.csv:
        replace_text(options.csv, worst_csv(worst))
    if options.json:
        replace_text(options.json, worst_json(worst))
    print(for_terminal(worst_text(worst)), end="")
    return 0


def _status(record: Record) -> dict[str, Any] | None:
    """Return the fields of an overflow status as in the vendor's JSON; None for other or damaged tensors."""
    from sgsdump.dumps.formats.ascend import overflow
    from sgsdump.errors import SgsdumpError

    if not overflow.is_status(record.tensor):
        return None
    try:
        return overflow.status_of(record.tensor)
    except SgsdumpError:
        return None


def _find(dump: Dump, name: str) -> tuple[Record, str]:
    """Return the record of a name, preferring outputs, and a note on the choice.

    For a Caffe blob without a tensor of its name, this is the last stage of the blob.
    """
    from sgsdump.errors import hint
    from sgsdump.tensors.stages import last_stage

    matches = [record for record in dump.records if record.name == name]
    if not matches and name.startswith("#") and name[1:].isdecimal() and int(name[1:10]) < len(dump.records):
        return dump.records[int(name[1:10])], ""
    if not matches:
        names = [record.name for record in dump.records]
        stage = last_stage(name, names)
        if stage is not None:
            record, note = _find(dump, stage)
            return record, f", the last stage of {name}{note}"
        near = f"; to select by a pattern, use --select {name!r}" if set(name) & set("*?[") else hint(name, names)
        raise ConfigError(f"no tensor {name!r} in {dump.path}{near}")
    matches.sort(key=lambda record: (record.io != "out", record.constant))
    outputs = [record for record in matches if record.io == matches[0].io]
    if len(outputs) == 1:
        return matches[0], ""
    numbers = [f"#{number}" for number, record in enumerate(dump.records) if record.name == name]
    return matches[0], f"; {len(numbers)} tensors have this name: {', '.join(numbers[:8])}"


def _array(record: Record, stored: bool) -> tuple[np.ndarray, str]:
    """Return the values to show, and their description."""
    from sgsdump.errors import ValuesError
    from sgsdump.tensors.device import conversion, is_device
    from sgsdump.tensors.dtypes import is_complex, is_number, name_of

    tensor, layout = record.tensor, record.tensor.info.layout
    if not stored and conversion(tensor.info):
        layout = conversion(tensor.info)
        tensor = tensor.logical()
    elif is_device(layout):
        layout = f"{layout} as stored"
    array = tensor.stored()
    kind = f"stored {name_of(array.dtype)}"
    if not stored and is_number(array.dtype) and not is_complex(array.dtype) and tensor.info.quant is not None:
        try:
            array = tensor.real()
            kind = f"real values of {kind}"
        except ValuesError:
            kind += ", whose exact scale is not in the dump"
    return array, ", ".join(filter(None, [kind, str(list(array.shape)), layout]))


def _write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as .npy, or as .bin: only the elements, in C order and little-endian."""
    from sgsdump.dumps.formats.shared.npy_file import write
    from sgsdump.files.atomic_write import replacing

    with replacing(path) as file:
        if path.suffix == ".bin":
            little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
            file.write(little.tobytes())
        else:
            write(file, array)
