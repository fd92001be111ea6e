"""Print the share of zeros in each tensor of a dump.

example:
  sgsdump zeros run.toy
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sgsdump import Dump, Record, Tensor, open_dump
from sgsdump.dumps.format import Format
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.plugins import Command, Plugin

MAGIC = b"toy 1\n"


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(path: Path) -> Dump:
    """Read a tensor of each line ``NAME: VALUE VALUE ...`` below the magic line."""
    records = []
    for index, line in enumerate(decode(read_bytes(path), path).splitlines()[1:]):
        name, _, values = line.partition(":")
        try:
            array = np.array(values.split(), np.float32)
        except ValueError:
            raise FormatError(f"{path}, line {index + 2}: {name!r} has something else than numbers") from None
        records.append(Record("out", 0, index, "", Tensor.of(name, array)))
    return Dump(records, "toy", path=path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="a dump of any format")


def run(args: argparse.Namespace) -> int:
    for name, tensor in open_dump(args.dump).outputs.items():
        print(f"{name}: {np.mean(tensor.real() == 0):.1%} zeros")
    return 0


FORMAT = Format("toy", recognises, read)
PLUGIN = Plugin(
    commands={"zeros": Command("sgsdump_toy", "the share of zeros in each tensor", "any dump")},
    formats={"toy": "sgsdump_toy:FORMAT"},
)
