"""Merge dumps into one: parts of a model, the files of split, or several runs of a model.

examples:
  sgsdump merge backbone.bin head.bin whole.bin
  sgsdump merge layers/ again.bin
  sgsdump merge cat.npz dog.npz pets.npz --prefix
  sgsdump merge dump@step=0 dump@step=1 both.npz --prefix

names and order:
  The merged dump keeps the order of the given dumps, and the order of the
  tensors in each dump. If DUMP is a folder that is not a dump itself, the dumps
  in this folder are merged, sorted by name. Names that occur in more than one
  dump are an error; --prefix avoids the error. The ending of OUT selects its
  format, as in sgsdump convert. Graphs beside the dumps (NAME.graph.onnx) are
  not merged.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.opening import has_no_runs, opened
from sgsdump.commands.options import Reading, add_readers, add_run, add_to, record

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump

_ARCHIVES = (".npz", ".safetensors")


@dataclass(frozen=True)
class Options:
    dumps: Sequence[Path]
    output: Path
    to: str | None
    reading: Reading
    prefix: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dumps", type=Path, nargs="+", metavar="DUMP", help="dumps, or folders of dumps")
    parser.add_argument("output", type=Path, metavar="OUT", help="file or folder to write")
    add_to(parser)
    add_run(parser)
    add_readers(parser)
    parser.add_argument(
        "--prefix", action="store_true", help="prefix the names of tensors with the file name of their dump"
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL, print_lines
    from sgsdump.dumps.conversion import merge, save
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.targets import common_form, target_of
    from sgsdump.dumps.trees import tree_of
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_not_around, check_outputs

    options = record(Options, args, reading=Reading(args.step, args.rank, reader=args.reader, files=args.files))
    step, rank = options.reading.step, options.reading.rank
    read = [tree_of(path) for path in options.dumps]
    check_not_around(options.output, read)
    alone = [path for path in options.dumps if has_no_runs(options.reading, path)]
    if options.reading.reader and not alone:
        opened(options.reading, *options.dumps)  # raises: the reader reads none of them
    trees = [path for path in options.dumps if path not in alone and _is_tree(path)]
    if not trees and not step is rank is None:
        raise ConfigError(
            "--step and --rank select a run of a tree, but none of these dumps is a tree; omit these options"
        )
    dumps = [
        labelled
        for path in options.dumps
        for labelled in (
            [(path.stem, opened(options.reading, path)[0])]
            if path in alone
            else [(path.name, open_dump(path, step, rank))]
            if path in trees
            else _dumps(path)
        )
    ]
    check_outputs([options.output], [dump.path for _, dump in dumps])
    for label, dump in dumps:
        print_lines(dump.notes, f"note: {label}: ")
    records = merge(dumps, options.prefix)
    format, variant = common_form([dump for _, dump in dumps])
    target = target_of(options.output, options.to, Dump(records, format, variant))
    saved = save(records, options.output, target, TERMINAL)
    print(f"{options.output}: {saved.written} tensors of {len(dumps)} dumps, {target.format}{saved}")
    return 1 if saved.left_out else 0


def _is_tree(path: Path) -> bool:
    """Return whether a path is a tree of runs or one run in it."""
    from sgsdump.dumps.trees import list_runs
    from sgsdump.errors import FormatError

    try:
        return bool(list_runs(path))
    except FormatError:
        return False


def _dumps(path: Path) -> list[tuple[str, Dump]]:
    """Return the dump at a path, or the dumps directly in a folder, each with its file name."""
    from sgsdump.dumps.dump import FOLDER
    from sgsdump.dumps.graph_file import ENDING
    from sgsdump.dumps.io import open_dump
    from sgsdump.errors import FormatError

    if not path.is_dir():
        return [(path.stem, open_dump(path))]
    files = [file for file in path.iterdir() if file.is_file() and not file.name.endswith(ENDING)]
    whole: FormatError | None = None
    try:
        dump = open_dump(path)
        # Archives of several tensors in a folder are dumps of their own.
        if dump.format != FOLDER or not all(file.suffix in _ARCHIVES for file in files):
            return [(path.name, dump)]
    except FormatError as error:
        if not files:
            raise
        whole = error
    try:
        return [(file.stem, open_dump(file)) for file in sorted(files, key=lambda file: _counting(file.name))]
    except FormatError as error:
        if whole is None:
            raise
        raise FormatError(f"{whole}; the folder cannot be read as a folder of dumps either: {error}") from None


def _counting(name: str) -> list[str | int]:
    """Return a sorting key of alternating text and numbers, so that part2 precedes part10."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", name))]
