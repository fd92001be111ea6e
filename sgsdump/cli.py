"""Command line: parse the arguments, run the command, and turn an error into one line and an exit status.

Exit status: 0 success, 1 a threshold of the user is exceeded, 2 an error (one line on standard error), 130 stopped by
Ctrl-C, 143 stopped by SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgsdump.errors import SgsdumpError
from sgsdump.files.process import INTERRUPTED, TERMINATED, Terminated, no_views, one_line_warnings, stopping_for_certain

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

# Set by the shell function that ``sgsdump completion`` prints.
ASKED_TO_COMPLETE = "_ARGCOMPLETE"
# Packages whose name differs from the module's.
PACKAGES = {
    "PIL": "Pillow",
    "google": "protobuf",
    "cv2": "opencv-python",
    "yaml": "PyYAML",
    "dateutil": "python-dateutil",
}


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv

    def run() -> int:
        # These imports take most of the start-up time: exit_status has to handle a signal that arrives meanwhile.
        from sgsdump.commands.parser import build_parser, called, with_help, with_new_names

        if ASKED_TO_COMPLETE in os.environ:
            from sgsdump.commands.completion import complete

            complete()
        words = with_new_names(with_help(given))
        args = build_parser(called(words)).parse_args(words)
        args.typed = list(words)  # the report shows the command that made it
        with _as_loud_as(args):
            status: int = _with_json_alone(args) if str(getattr(args, "json", "")) == "-" else args.run(args)
        return status

    return exit_status("sgsdump", run)


@contextlib.contextmanager
def _as_loud_as(args: argparse.Namespace) -> Iterator[None]:
    """Apply ``-q`` and ``-v`` in the block.

    ``-q`` prints nothing except the output of ``--json -``. ``-v`` logs versions and timings to standard error
    (``commands/terminal.py`` logs the steps) and prints the traceback of an error.
    """
    if getattr(args, "quiet", False):
        with _silent(stdout=str(getattr(args, "json", "")) != "-", stderr=True):
            yield
        return
    if not getattr(args, "verbose", False):
        yield
        return
    import logging
    import traceback
    from time import monotonic

    handler, logger, begin = logging.StreamHandler(sys.stderr), logging.getLogger("sgsdump"), monotonic()
    handler.setFormatter(logging.Formatter("sgsdump: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        logger.info(_versions())
        yield
    except SgsdumpError:
        traceback.print_exc()
        raise
    finally:
        logger.info("ended after %.1f s", monotonic() - begin)
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(handler)


@contextlib.contextmanager
def _silent(stdout: bool = False, stderr: bool = False) -> Iterator[None]:
    """Discard what the block prints to the given streams."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.ExitStack() as stack:
        if stdout:
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        if stderr:
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def _versions() -> str:
    import platform
    from importlib.metadata import version

    from sgsdump import __version__
    from sgsdump.comparison.sums.summation import description

    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnx", "onnxruntime"))
    return f"{__version__}, {description()}; Python {platform.python_version()}, {packages}, {platform.platform()}"


def _with_json_alone(args: argparse.Namespace) -> int:
    """Run with ``--json -``: print only the JSON on standard output."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="sgsdump_") as folder:
        args.json = Path(folder, "result.json")
        with _silent(stdout=True):
            status: int = args.run(args)
        if args.json.exists():
            sys.stdout.write(args.json.read_text(encoding="utf-8"))
    return status


def exit_status(program: str, run: Callable[[], int]) -> int:
    """Return the status of ``run``; 2 with one line on standard error for a user's error, 130 or 143 if stopped."""
    _open_closed_streams()
    try:
        with stopping_for_certain(), one_line_warnings(program), no_views():
            status = run()
            sys.stdout.flush()
            return status
    except SgsdumpError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        for hint in getattr(error, "hints", ()):
            print(f"  {hint}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("sgsdump"):
            raise
        print(f"{program}: error: {error.name} is not installed; {_how_to_install(error.name)}", file=sys.stderr)
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        # Errors that no module expects: a full disk under standard output, a name longer than the system allows.
        where = f" {str(error.filename)[:80]}" if error.filename else ""
        print(f"{program}: error: the system refused{where}: {error.strerror or error}", file=sys.stderr)
        _forget_output()
    except Terminated:
        print(f"{program}: stopped by SIGTERM", file=sys.stderr)
        return TERMINATED
    except KeyboardInterrupt:
        print(f"{program}: stopped", file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        print(f"{program}: error: out of memory; try a smaller batch or a smaller model", file=sys.stderr)
    return 2


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller closed (``>&-``).

    Otherwise printing fails, and the first result file would get the stream's number, to which child programs write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _how_to_install(name: str) -> str:
    """Return the pip command that installs a missing package, or the whole checkout if sgsdump was never installed."""
    import shlex
    from pathlib import Path

    root, pip = Path(__file__).parents[1], [sys.executable, "-m", "pip", "install"]
    if (root / "pyproject.toml").is_file() and not _is_installed(root):
        return f"install what sgsdump needs: {shlex.join([*pip, str(root)])}"
    package = PACKAGES.get(name.partition(".")[0], name.partition(".")[0])
    return f"install it: {shlex.join([*pip, package])}"


def _is_installed(checkout: Path) -> bool:
    """Return whether sgsdump is installed, even as a link to its checkout; build leftovers there do not count."""
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    try:
        return Path(str(distribution("sgsdump").locate_file(""))).resolve() != checkout.resolve()
    except PackageNotFoundError:
        return False


def _forget_output() -> None:
    """Redirect standard output to the null device, so that Python does not retry the failed write at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
