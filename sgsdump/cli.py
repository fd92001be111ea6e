"""The command line: parse, dispatch, turn an error into one line and an exit status.

Exit status: 0 done, 1 a threshold the user set is exceeded, 2 trouble (one line on standard error says which).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sgsdump.commands.parser import build_parser
from sgsdump.errors import SgsdumpError


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
