"""Split a dump into one file per tensor, or into one file per name pattern.

examples:
  sgsdump split sigma_outtensor_dump.bin layers/
  sgsdump split layers.npz parts/ --pattern 'backbone*' --pattern 'head*'
  sgsdump split ascend_dumps/ layers/ --to safetensors

the parts:
  The files are numbered in the order of the dump. To restore the dump, run
  sgsdump merge on the folder. With --pattern, a tensor goes to the file of
  the first pattern that matches its name; other tensors go to the file "rest".
  The parts have the format of the dump if one file can hold this format, else
  .npz. If the output folder exists, the old folder is renamed.
  The graph beside the dump (NAME.graph.onnx) is not copied.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.commands.opening import opened
from sgsdump.commands.options import Reading, add_readers, add_run, add_to, record


@dataclass(frozen=True)
class Options:
    dump: Path
    output: Path
    pattern: Sequence[str]
    reading: Reading
    to: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="dump in any known format")
    parser.add_argument("output", type=Path, metavar="FOLDER", help="folder for the parts")
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="PATTERN",
        help="write the tensors whose names match PATTERN (wildcards: *, ?, [ab]) to one file; may be repeated",
    )
    add_run(parser)
    add_readers(parser)
    add_to(parser, "format of the parts (default: the format of the dump if one file can hold this format, else npz)")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL, print_lines
    from sgsdump.dumps.conversion import readable, reasons, split, unwritable, write
    from sgsdump.dumps.targets import OWN_ENDINGS, Target, losses, target_of
    from sgsdump.dumps.trees import tree_of
    from sgsdump.errors import ConfigError, ValuesError
    from sgsdump.files.atomic_write import check_not_around, replacing_folder
    from sgsdump.progress import each

    options = record(Options, args, reading=Reading(args.step, args.rank, reader=args.reader, files=args.files))
    check_not_around(options.output, [tree_of(options.dump)])
    (dump,) = opened(options.reading, options.dump)
    print_lines(dump.notes, "note: ")
    endings = {format: ending for format, ending in OWN_ENDINGS.items() if ending}
    name = options.to or (dump.format if dump.format in endings else "npz")
    target = target_of(options.output, name, dump)
    if target.format not in endings:
        raise ConfigError(
            f"split writes each part as one file, but the format {name} writes a folder; give --to one "
            f"of: {', '.join(endings)}"
        )
    if options.to is None and dump.format == target.format:
        target = Target(target.format, dump.variant)
    left_out: list[tuple[str, str]] = []
    refused_lines: list[str] = []
    parts = split(dump, options.pattern, endings[target.format])
    with replacing_folder(options.output) as folder:
        written = 0
        for part in each(TERMINAL, parts, "split", "part", len(parts)):
            refused = {id(record) for record in unwritable(part.records, target)}
            refused_lines += losses([record for record in part.records if id(record) in refused], *target)
            records = [record for record in part.records if id(record) not in refused]
            kept = list(readable(records, left_out)) if len(records) == 1 else records
            if kept:
                write(kept, folder / part.file, target)
                written += 1
        if not written:
            raise ValuesError(f"nothing is written: {target.format} cannot store any tensor of {options.dump}")
    print_lines(reasons(left_out))
    print_lines(refused_lines, "left out: ")
    print(f"{options.output}: {written} parts, {target.format}")
    return 1 if left_out or refused_lines else 0
