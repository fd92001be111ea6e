"""Terminal output: window size, progress, and messages shared by several commands.

Work that takes over a second shows a progress bar on standard error, if that is a terminal. One-line messages appear
between the bars.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal

from sgsdump.files.escaping import for_terminal
from sgsdump.progress import Advance, Progress, late_bar, unwatched

if TYPE_CHECKING:
    from sgsdump.models.model import Model
    from sgsdump.reports.window import Window
    from sgsdump.sidecars.input_config import InputConfig

LOGGER = getLogger("sgsdump")  # -v shows it


@dataclass(frozen=True)
class Terminal:
    """The ``Progress`` of the commands.

    lines  target of ``say``: standard output for messages that belong to the result, standard error for warnings
    bars   False: no progress bars
    """

    lines: Literal["stdout", "stderr"] = "stdout"
    bars: bool = True

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        began = monotonic()
        if not self.bars or not sys.stderr.isatty():
            yield unwatched
        else:
            with late_bar(what, unit, total) as advance:
                yield advance
        LOGGER.info("%s took %.1f s", what, monotonic() - began)

    def say(self, line: str) -> None:
        print(for_terminal(line), file=getattr(sys, self.lines))


TERMINAL: Progress = Terminal()


def print_lines(lines: Iterable[str], prefix: str = "", flush: bool = False) -> None:
    """Print lines on standard output, each with the prefix."""
    for line in lines:
        print(for_terminal(f"{prefix}{line}"), flush=flush)


def print_early(lines: Iterable[str]) -> None:
    """Print assumptions and warnings on standard error, before the work: standard output begins with the verdict."""
    for line in lines:
        print(for_terminal(line), file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print an error that ends a command on standard error."""
    print(for_terminal(f"sgsdump: error: {text}"), file=sys.stderr)


def print_folder(folder: Path, asides: Iterable[Path]) -> None:
    """Print the path of the report, after the older folders that were renamed."""
    for aside in asides:
        print(f"moved the older {folder} aside to {aside}")
    print(f"Report: {folder / 'report.html'}")


def window() -> Window:
    """Return the window of standard output, or a pipe. Colours follow https://no-color.org."""
    from sgsdump.reports.window import Window

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if not sys.stdout.isatty():
        return Window(None, encoding=encoding)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    old_console = os.name == "nt" and "WT_SESSION" not in os.environ
    return Window(shutil.get_terminal_size().columns, not plain and not old_console, encoding)


def print_branches(model: Model) -> None:
    print_lines(model.branches.sentences() if model.branches else (), "note: ")


def print_cut(model: Model, config: InputConfig | None = None) -> None:
    """Print the branches taken, the part that was cut off, and lines for input_config.ini.

    The lines are left out if ``config`` already names the outputs of the cut model.
    """
    from sgsdump.reports.post_processing import cut_sentence, to_paste

    print_branches(model)
    if model.cut is not None:
        print_lines([f"note: {cut_sentence(model.cut)}", *to_paste(model.cut, config)])
