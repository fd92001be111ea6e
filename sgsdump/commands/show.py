"""List what is in a dump, or print the values of one tensor.

The list has a line per tensor, and reads every value once for min, max, mean and l2norm (of the finite values) and
the counts of NaN, +Inf and -Inf; on a narrow terminal it is shortened. Values are the real ones, a device's layout
undone where the original shape is known; --stored shows them as they are in the file. An overflow status is shown
field by field. NAME is a tensor's name, or #3 for the fourth line of the list. OPERATIONS take a part of it, [0:2,3],
or put its axes in another order, (0,2,3,1); ; between several. With --against another dump the values of NAME that
are farthest apart are shown: index, both values, the error and the relative error, NaN and Inf that are not in both
first. Exit status 1 when a tensor of the list is damaged.

Of a tree with several runs (steps, ranks, graphs) the runs are listed: --step, --rank or TREE@step=3,rank=0,graph=NAME
choose one, here and wherever a dump is named.

With --operators the file is a model: ONNX, a program that torch.export.save wrote (.pt2), the text of a graph
(ge_proto_*.txt, which DUMP_GE_GRAPH=3 leaves), or the topology of a running program (a tree of sgsdump exec, or a file
in its model/). Its operators are listed by the names that dump_layer takes, with type, inputs and attributes; those of
a topology with the ids that -ids takes.

examples:
  sgsdump show sigma_outtensor_dump.bin
  sgsdump show ascend_dumps/ --select '*:output:*' --csv tensors.csv
  sgsdump show sigma_outtensor_dump.bin conv1
  sgsdump show ascend_dumps/ --step 3 --rank 0
  sgsdump show layers.npz conv1 '[0,0:2]'
  sgsdump show --operators ge_proto_00000001_graph_1.txt --select '*relu*'
  sgsdump show fixed.bin conv1 --against float.bin --worst 20
  sgsdump show layers.npz conv1 --operations '(0,2,3,1);[0,...,3]' --output part.npy
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.commands.options import add_run

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.run import Run

_OF_DUMPS = "name part operations step rank stored all against worst csv output".split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="a dump of any known format")
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the values of this tensor")
    parser.add_argument("part", nargs="?", metavar="OPERATIONS", help="of it a part, or another order of axes")
    parser.add_argument("--operations", metavar="OPERATIONS", help="the same, as an option")
    parser.add_argument(
        "--select", action="append", default=[], metavar="PATTERN", help="list only such names (* ? [ab])"
    )
    add_run(parser)
    parser.add_argument("--operators", action="store_true", help="list the operators of a model, not of a dump")
    parser.add_argument("--stored", action="store_true", help="the values as they are in the file")
    parser.add_argument("--all", action="store_true", help="print large tensors whole")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="BENCHMARK",
        help="compare NAME with the same tensor of this dump, value by value",
    )
    parser.add_argument("--worst", type=int, metavar="N", help="show so many of the worst values (default 20)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the list, or the values, as CSV")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the list, or the values, as JSON")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the values: .npy, or bare bytes to .bin"
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import together

    with together():
        return _operators(args) if args.operators else _run(args)


def _operators(args: argparse.Namespace) -> int:
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.files.terminal_text import for_terminal
    from sgsdump.models.operator_list import list_operators
    from sgsdump.reports.dump import operators_table

    given = [name for name in _OF_DUMPS if getattr(args, name) not in (None, False)]
    if given:
        option = "NAME" if given[0] in ("name", "part") else f"--{given[0]}"
        raise ConfigError(f"--operators lists a model; {option} is for a dump: leave one of them out")
    check_outputs([args.json], [args.dump])
    graphs = operators_table.selected(list_operators(args.dump), args.select)
    if args.json:
        replace_text(args.json, operators_table.json_document(graphs))
    print(for_terminal(operators_table.render(graphs)), end="")
    return 0


def _run(args: argparse.Namespace) -> int:
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.trees import list_runs, tree_of
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_outputs

    check_outputs([args.csv, args.json, args.output], [tree_of(path) for path in (args.dump, args.against) if path])
    if args.output and args.output.suffix not in (".npy", ".bin"):
        raise ConfigError(f"-o {args.output}: values are written as .npy, or as bare bytes to .bin; name one of these")
    if args.name is None and (args.operations or args.output or args.stored or args.all):
        raise ConfigError("--operations, --output, --stored and --all belong to one tensor; give its NAME too")
    if args.against is not None or args.worst is not None:
        return _worst(args)
    if args.part and args.operations:
        raise ConfigError("give OPERATIONS once, behind NAME or with --operations")
    notes: list[str] = []
    runs = list_runs(args.dump, args.step, args.rank, notes)
    if len(runs) > 1 and not (args.name or args.csv or args.json or args.select):
        return _list_runs(runs, notes, args)
    dump = open_dump(args.dump, args.step, args.rank)
    return _list(dump, args) if args.name is None else _values(dump, args)


def _list_runs(runs: Sequence[Run], notes: Sequence[str], args: argparse.Namespace) -> int:
    """What there is to choose from in a tree of several runs."""
    from sgsdump.dumps.run import how_to_choose
    from sgsdump.files.terminal_text import for_terminal
    from sgsdump.reports.dump import runs_table

    print(for_terminal(runs_table.render(runs)), end="")
    print(for_terminal(f"{len(runs)} runs; {how_to_choose(args.dump, runs)}"))
    for note in notes:
        print(for_terminal(f"note: {note}"))
    return 0


def _list(dump: Dump, args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.dumps.dump import selected
    from sgsdump.dumps.inventory import inventory
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.terminal_text import for_terminal
    from sgsdump.progress import each
    from sgsdump.reports.dump import inventory_csv, inventory_json, inventory_table

    chosen = {id(record) for record in selected(dump.records, args.select)}
    places = [(number, record) for number, record in enumerate(dump.records) if id(record) in chosen]
    items = list(inventory(each(TERMINAL, places, "show", "tensor", len(places))))
    if args.csv:
        replace_text(args.csv, inventory_csv.render(items))
    if args.json:
        replace_text(args.json, inventory_json.render(items, dump.notes))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(for_terminal(inventory_table.render(items, width)), end="")
    among = f" of {len(dump.records)}" if args.select else ""
    print(f"{len(items)}{among} tensor{'' if len(items) == 1 else 's'}, {dump.format}")
    for note in dump.notes:
        print(for_terminal(f"note: {note}"))
    return 1 if any(item.damaged for item in items) else 0


def _values(dump: Dump, args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.terminal_text import for_terminal, shown
    from sgsdump.reports.dump import tensor_values
    from sgsdump.tensors.slicing import viewed

    record, note = _find(dump, args.name)
    of_bytes = args.stored or args.part or args.operations or args.output or args.csv
    status = None if of_bytes else _status(record)
    if status is not None:
        text = json.dumps(status, indent=4) + "\n"
        if args.json:
            replace_text(args.json, text)
        print(for_terminal(f"{shown(record.name)}: status of an overflow; --stored shows its bytes{note}"))
        for told in dump.notes:
            if told.startswith(f"{record.name}: "):
                print(for_terminal(f"note: {told}"))
        print(text, end="")
        return 0
    array, how = _array(record, args.stored)
    part = viewed(array, args.part or args.operations or "")
    if args.csv:
        replace_text(args.csv, tensor_values.csv_table(part))
    if args.json:
        replace_text(args.json, tensor_values.json_document(part, record.name))
    if args.output:
        _write_array(args.output, part)
    print(for_terminal(f"{shown(record.name)}: {how}{note}"))
    print(for_terminal(tensor_values.text(part, args.all)), end="")
    return 0


def _worst(args: argparse.Namespace) -> int:
    """The values of one tensor that differ most from another dump's."""
    from sgsdump.commands.options import opened
    from sgsdump.comparison.worst_values import worst_values
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.terminal_text import for_terminal
    from sgsdump.reports.dump import worst_values as report

    if args.against is None or args.name is None:
        raise ConfigError(
            "--worst and --against belong together, and to one tensor: show DUMP NAME --against BENCHMARK"
        )
    if args.part or args.operations or args.stored or args.all or args.output:
        raise ConfigError("--against shows index and values; leave out OPERATIONS, --stored, --all and --output")
    count = 20 if args.worst is None else args.worst
    sample, benchmark = opened(args, args.dump, args.against)
    worst = worst_values(sample, benchmark, args.name, count)
    if args.csv:
        replace_text(args.csv, report.csv_table(worst))
    if args.json:
        replace_text(args.json, report.json_document(worst))
    print(for_terminal(report.text(worst)), end="")
    return 0


def _status(record: Record) -> dict[str, Any] | None:
    """What an overflow status says, as the vendor's own JSON has it; None for any other tensor, or a damaged one."""
    from sgsdump.dumps.formats.ascend import overflow
    from sgsdump.errors import SgsdumpError

    if not overflow.is_status(record.tensor):
        return None
    try:
        return overflow.status_of(record.tensor)
    except SgsdumpError:
        return None


def _find(dump: Dump, name: str) -> tuple[Record, str]:
    """The record of a name, an output before all others, and a note on the choice."""
    from sgsdump.errors import ConfigError
    from sgsdump.registry import hint

    matches = [record for record in dump.records if record.name == name]
    if not matches and name.startswith("#") and name[1:].isdecimal() and int(name[1:10]) < len(dump.records):
        return dump.records[int(name[1:10])], ""
    if not matches:
        names = [record.name for record in dump.records]
        near = f"; for patterns there is --select {name!r}" if set(name) & set("*?[") else hint(name, names)
        raise ConfigError(f"no tensor {name!r} in {dump.path}{near}")
    matches.sort(key=lambda record: (record.io != "out", record.constant))
    outputs = [record for record in matches if record.io == matches[0].io]
    if len(outputs) == 1:
        return matches[0], ""
    numbers = [f"#{number}" for number, record in enumerate(dump.records) if record.name == name]
    return matches[0], f"; {len(numbers)} tensors have this name: {', '.join(numbers[:8])}"


def _array(record: Record, stored: bool) -> tuple[np.ndarray, str]:
    """The values to show, and what they are."""
    from sgsdump.errors import ValuesError
    from sgsdump.tensors.device_layout import conversion, is_device
    from sgsdump.tensors.dtypes import is_complex, is_number, name_of

    tensor, layout = record.tensor, record.tensor.info.layout
    if not stored and conversion(tensor.info):
        layout = conversion(tensor.info)
        tensor = tensor.logical()
    elif is_device(layout):
        layout = f"{layout} as it lies"
    array = tensor.stored()
    what = f"stored {name_of(array.dtype)}"
    if not stored and is_number(array.dtype) and not is_complex(array.dtype) and tensor.info.quant is not None:
        try:
            array = tensor.real()
            what = f"real values of {what}"
        except ValuesError:
            what += ", whose true scale the dump does not tell"
    return array, ", ".join(filter(None, [what, str(list(array.shape)), layout]))


def _write_array(path: Path, array: np.ndarray) -> None:
    """As .npy; to a .bin the elements alone, in C order and little-endian."""
    from sgsdump.dumps.formats.arrays.npy_file import write
    from sgsdump.files.atomic_write import replacing

    with replacing(path) as file:
        if path.suffix == ".bin":
            own = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
            file.write(own.tobytes())
        else:
            write(file, array)
