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
from pathlib import Path

from sgsdump.commands.options import add_run
from sgsdump.commands.show.inventory import show_runs, show_tensors
from sgsdump.commands.show.operators import show_operators
from sgsdump.commands.show.values import show_values, show_worst


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
        return show_operators(args) if args.operators else _of_dump(args)


def _of_dump(args: argparse.Namespace) -> int:
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
        return show_worst(args)
    if args.part and args.operations:
        raise ConfigError("give OPERATIONS once, behind NAME or with --operations")
    notes: list[str] = []
    runs = list_runs(args.dump, args.step, args.rank, notes)
    if len(runs) > 1 and not (args.name or args.csv or args.json or args.select):
        return show_runs(runs, notes, args)
    dump = open_dump(args.dump, args.step, args.rank)
    return show_tensors(dump, args) if args.name is None else show_values(dump, args)
