"""The command line: parse, dispatch, turn an error into one line and an exit status.

Exit status: 0 done, 1 a threshold the user set is exceeded, 2 trouble (one line on standard error says which).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sgsdump import __version__
from sgsdump.commands import COMMANDS
from sgsdump.errors import SgsdumpError

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


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    return exit_status("sgsdump", lambda: args.run(args))


def exit_status(program: str, run: Callable[[], int]) -> int:
    """What ``run`` returns; 2 and one line on standard error for what a user can cause."""
    try:
        status = run()
        sys.stdout.flush()
        return status
    except SgsdumpError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("sgsdump"):
            raise
        root = Path(__file__).parents[1]
        print(
            f"{program}: error: {error.name} is not installed; install what sgsdump needs: pip install {root}",
            file=sys.stderr,
        )
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        # What no module expected: a full disk behind standard output, a name longer than the system takes.
        where = f" {str(error.filename)[:80]}" if error.filename else ""
        print(f"{program}: error: the system refused{where}: {error.strerror or error}", file=sys.stderr)
        _forget_output()
    except KeyboardInterrupt:
        print(f"{program}: stopped", file=sys.stderr)
    except MemoryError:
        print(f"{program}: error: out of memory; try a smaller batch or a smaller model", file=sys.stderr)
    return 2


def _forget_output() -> None:
    """Let Python end without trying again to write what standard output would not take."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
