"""The command line's parser: one subcommand for each member of ``COMMANDS``."""

from __future__ import annotations

import argparse

from sgsdump import __version__
from sgsdump.commands import COMMANDS

DESCRIPTION = "Find the layer that loses accuracy when a network is quantised."
EXAMPLES = """\
examples:
  sgsdump demo                                             the whole loop on an embedded sample
  sgsdump dump --model_file m.onnx -i cat.jpg -n pre.py    every layer of a model into one dump
  sgsdump compare sample.bin benchmark.bin                 MSE, COS and RMSE of every layer, and a verdict
"""


class Parser(argparse.ArgumentParser):
    """Takes options anywhere among the positional arguments, so that ``show DUMP --stored NAME`` reads as it looks.

    argparse of Python before 3.13 gives up on an optional positional argument once it met an option behind the first.
    """

    _again = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        found, left = super().parse_known_args(args, namespace)
        if not left or self._again or any(action.nargs == argparse.PARSER for action in self._actions):
            return found, left
        self._again = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._again = False


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sgsdump", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"sgsdump {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = COMMANDS[name]
        sub = subparsers.add_parser(
            name,
            help=command.HELP,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser
