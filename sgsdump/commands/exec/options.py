"""The options of ``sgsdump exec``, and of ``msit``'s commands, which have some of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.exec.messages import LEVELS
from sgsdump.commands.option_values import size_in_bytes

if TYPE_CHECKING:
    from sgsdump.capture.front_door import Asked

TYPES = "model, layer, op, kernel, tensor, stats, cpu_profiling, onnx"
DEFAULT_SEED = 2024
# Each option, as argparse keeps it, and what ``Asked`` calls it.
MEANINGS = {
    "type": "types",
    "only_save_desc": "description",
    "save_operation_ids": "ids",
    "execute_range": "ranges",
    "save_operation_child": "child",
    "save_time": "time",
    "operation_name": "names",
    "save_tiling": "tiling",
    "save_tensor_part": "part",
    "device_id": "device",
    "enable_symlink": "symlink",
    "seed": "seed",
    "dump_mode": "dump_mode",
    "dump_step": "dump_step",
    "dump_layer": "dump_layer",
    "dump_data": "dump_data",
    "operation_regex": "regex",
    "rank": "ranks",
    "links": "links",
    "max_size": "max_size",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    parser.add_argument(
        "--check-config",
        type=Path,
        metavar="JSON",
        help="run nothing: say whether the vendor takes this file, and why not",
    )
    add_msit_options(parser.add_argument_group("as msit llm dump has them"))
    _add_torchair_options(parser.add_argument_group("as TorchAir has them"))
    _add_own_options(parser.add_argument_group("further"))


def _add_torchair_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--dump-mode", choices=["input", "output", "all"], help="TorchAir's word for -stp")
    parser.add_argument("--dump-step", metavar="STEPS", help="TorchAir's word for -er: 0|3-5|10")
    parser.add_argument(
        "--dump-layer", metavar="'A B'", help="exact operator names, spaces between, as TorchAir has it"
    )
    parser.add_argument("--dump-data", choices=["tensor", "stats"], help="TorchAir's word for --type tensor [stats]")


def _add_own_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--operation-regex",
        action="append",
        default=[],
        metavar="RE",
        help="operators whose name it matches; repeat it",
    )
    parser.add_argument("--rank", metavar="N,N", help="only these ranks of a distributed program")
    parser.add_argument(
        "--links",
        choices=["none", "symlink", "hardlink", "index"],
        help="what stands for a payload equal to an earlier one (none; index: the earlier file's path in index.jsonl)",
    )
    parser.add_argument("--max-size", type=size_in_bytes, metavar="SIZE", help="dump at most this much: 500M, 20G")


def add_program(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("program", nargs="*", metavar="-- PROGRAM ARGS", help="the program as it is started")
    parser.add_argument("--exec", dest="command_line", metavar="CMD", help="the same in one text, without redirection")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where msit_dump_{time} goes (acl.json's dump_path, or here)"
    )
    parser.add_argument(
        "-opname",
        "--operation-name",
        action="append",
        metavar="A,B",
        help="operators whose type begins so, in any case (msit debug dump: exact names)",
    )


def add_msit_options(parser: argparse._ActionsContainer) -> None:
    """The options of msit llm dump, with its defaults."""
    parser.add_argument("--type", nargs="+", metavar="TYPE", help=f"of {TYPES} (tensor model)")
    parser.add_argument("-sd", "--only-save-desc", action="store_true", help="types and shapes without values")
    parser.add_argument(
        "-ids", "--save-operation-ids", nargs="+", metavar="ID", help="operators by number: 2,3_1 (all)"
    )
    parser.add_argument(
        "-er", "--execute-range", metavar="A,B", help="steps in pairs of first and last: 3,5,7,7; all (0,0)"
    )
    parser.add_argument(
        "-child", "--save-operation-child", metavar="BOOL", help="False: only the outermost ones (True)"
    )
    parser.add_argument(
        "-time", "--save-time", metavar="N", help="0 before, 1 after, 2 both, 3 inputs before and outputs after (3)"
    )
    parser.add_argument("-tiling", "--save-tiling", action="store_true", help="taken, without effect off the card")
    parser.add_argument("-stp", "--save-tensor-part", metavar="N", help="0 inputs, 1 outputs, 2 both (2)")
    parser.add_argument("-device", "--device-id", metavar="N", help="only this device (all)")
    parser.add_argument("-symlink", "--enable-symlink", action="store_true", help="links in the place of equal data")
    parser.add_argument(
        "-config",
        "--config-path",
        type=Path,
        metavar="JSON",
        help="msit's configuration or acl.json; read again when it changes while the program runs",
    )
    parser.add_argument(
        "-l", "--log-level", choices=LEVELS, default="info", help="of what this program says on standard error"
    )
    parser.add_argument(
        "-seed",
        type=int,
        nargs="?",
        const=DEFAULT_SEED,
        metavar="N",
        help=f"seed and deterministic algorithms (without a number {DEFAULT_SEED})",
    )


def asked(args: argparse.Namespace) -> Asked:
    """What was asked for; an option that a command does not have was not."""
    from sgsdump.capture.front_door import Asked

    return Asked(**{meaning: value for name, value in vars(args).items() if (meaning := MEANINGS.get(name))})
