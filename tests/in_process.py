"""A command as a user would run it, without the cost of another Python: in this process, in a folder, with an
environment of its own. What it starts writes into the same two files, as it would at a terminal."""

import contextlib
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

# As ``python -m sgsdump``, whatever room the disk has.
SGSDUMP = (
    "import sys; from sgsdump.cli import main; from sgsdump.capture.programs import control; "
    "control.MIN_FREE = 0; sys.exit(main())"
)
Done = subprocess.CompletedProcess[str]


def called(run: Callable[[], object], cwd: str | Path, environment: Mapping[str, str], words: list[str]) -> Done:
    """``run()``, which returns a status or ends with one; the texts of both outputs and the status."""
    own, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder, "stdout"), Path(folder, "stderr")]
        with contextlib.ExitStack() as after:
            for number, path, redirected in zip(
                (1, 2), texts, (contextlib.redirect_stdout, contextlib.redirect_stderr)
            ):
                after.callback(os.close, kept := os.dup(number))
                after.callback(os.dup2, kept, number)
                stream = after.enter_context(path.open("w", buffering=1))
                os.dup2(stream.fileno(), number)
                after.enter_context(redirected(stream))
            after.callback(_put_environment, own)
            after.callback(os.chdir, here)
            _put_environment(environment)
            os.chdir(cwd)
            status = _status(run)
        return Done(words, status, *(path.read_text() for path in texts))


def _put_environment(wanted: Mapping[str, str]) -> None:
    wanted = dict(wanted)
    os.environ.clear()
    os.environ.update(wanted)


def _status(run: Callable[[], object]) -> int:
    try:
        status = run()
    except SystemExit as end:
        status = end.code
    except BaseException:  # as the interpreter would
        traceback.print_exc()
        return 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        return 1
    return int(status or 0)  # type: ignore[call-overload]


def script(path: Path, words: list[str], cwd: Path, environment: Mapping[str, str]) -> Done:
    """A Python program, as ``python path words`` runs it."""

    def run() -> None:
        with mock.patch.object(sys, "argv", [str(path), *words]), mock.patch.object(sys, "path", list(sys.path)):
            sys.path.insert(0, str(path.parent))
            runpy.run_path(str(path), run_name="__main__")

    return called(run, cwd, environment, [str(path), *words])
