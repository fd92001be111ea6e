"""Dump a running program with the commands of msit (``sgsdump-msit``): msit llm dump and msit debug dump.

msit llm dump --exec "python infer.py" [--type model tensor] [-er 0,0] [-ids 2,3_1] [-o DIR] ...
msit debug dump --exec "python infer.py" [--output DIR] [-opname MatMulv2_1,trans_Cast_0]

Both write msit_dump_{time}, which sgsdump show and compare open. Options and defaults are those of msit: llm dump
records the first round, and -opname selects types by their beginning; debug dump records every run, and -opname selects
exact names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

from sgsdump.cli import exit_status


def main() -> int:
    """Run ``sgsdump-msit`` or ``tools/msit``; return the exit status."""
    return exit_status("msit", lambda: run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    from sgsdump.capture.commands import exec as command
    from sgsdump.capture.programs.options import debug_dump, llm_dump
    from sgsdump.errors import ConfigError

    if list(words[1:2]) == ["compare"] and words[0] in ("llm", "debug"):
        raise ConfigError(f"msit {words[0]} compare is not available; use sgsdump compare MINE GOLDEN")
    args = arguments(command).parse_args(words)
    return command.dump(command.exec_options(args), {"llm": llm_dump, "debug": debug_dump}[args.room])


def arguments(command: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="msit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rooms = parser.add_subparsers(dest="room", metavar="llm|debug", required=True)
    for room in ("llm", "debug"):
        tools = rooms.add_parser(room).add_subparsers(dest="tool", metavar="dump", required=True)
        dump = tools.add_parser("dump")
        command.add_program(dump)
        if room == "llm":
            command.add_msit_options(dump)
        else:
            dump.set_defaults(config_path=None, log_level="info")
    return parser
