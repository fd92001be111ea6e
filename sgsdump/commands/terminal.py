"""The terminal: its window, progress on it, and what several commands say of a report or of a cut network.

Progress is bars on standard error for work over a second, and one-line messages between them. Where standard error is
not a terminal there are no bars.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal, NoReturn

from sgsdump.files.escaping import for_terminal
from sgsdump.progress import Advance, Progress, unwatched

if TYPE_CHECKING:
    from tqdm import tqdm

    from sgsdump.models.model import Model, PostProcessingCut
    from sgsdump.reports.report import Report
    from sgsdump.reports.window import Window
    from sgsdump.sidecars.input_config import InputConfig

DELAY_SECONDS = 1.0
MOST_LAYERS = 12


@dataclass(frozen=True)
class Terminal:
    """The ``Progress`` of the commands.

    lines  where ``say`` prints: messages that belong to the result on standard output, warnings on standard error.
    bars   False draws none.
    """

    lines: Literal["stdout", "stderr"] = "stdout"
    bars: bool = True

    @contextmanager
    def bar(self, what: str, unit: str, total: int | None = None) -> Iterator[Advance]:
        if not self.bars or not sys.stderr.isatty():
            yield unwatched
            return
        started, expected = monotonic(), total
        drawn: tqdm[NoReturn] | None = None

        def advance(done: int, total: int | None = None) -> None:
            nonlocal drawn, expected
            expected = expected if total is None else total
            if drawn is None:
                lasted = monotonic() - started
                if lasted < DELAY_SECONDS:
                    return
                drawn = _bar(what, unit, expected, lasted)
            drawn.total = None if expected is None else max(done, expected)  # estimates may be too low
            drawn.update(done - drawn.n)

        try:
            yield advance
        finally:
            if drawn is not None:
                drawn.close()

    def say(self, line: str) -> None:
        print(for_terminal(line), file=getattr(sys, self.lines))


TERMINAL: Progress = Terminal()


def print_lines(lines: Iterable[str], prefix: str = "", flush: bool = False) -> None:
    """On standard output, each line with the prefix before it."""
    for line in lines:
        print(for_terminal(f"{prefix}{line}"), flush=flush)


def print_verdict(report: Report) -> None:
    """What a report says first, and what to do next."""
    print_lines(report.verdict)
    for step in report.next_steps:
        print_lines([step.text, *step.copy.splitlines()])


def print_folder(folder: Path, asides: Iterable[Path]) -> None:
    """Where the report is, after the older folders that were moved aside for it."""
    for aside in asides:
        print(f"moved the older {folder} aside to {aside}")
    print(f"Report: {folder / 'report.html'}")


def _bar(what: str, unit: str, total: int | None, seconds: float) -> tqdm[NoReturn]:
    """A bar of work that has lasted ``seconds``."""
    from tqdm import tqdm  # here, since only work that lasts needs it

    bar: tqdm[NoReturn] = tqdm(desc=what, unit=unit, total=total, delay=DELAY_SECONDS, leave=False, dynamic_ncols=True)
    bar.start_t = bar.last_print_t = bar.start_t - seconds
    return bar


def window() -> Window | None:
    """The window that standard output goes to, None for a pipe or a file. Colours by https://no-color.org."""
    from sgsdump.reports.window import Window

    if not sys.stdout.isatty():
        return None
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    old_console = os.name == "nt" and "WT_SESSION" not in os.environ
    return Window(shutil.get_terminal_size().columns, not plain and not old_console, sys.stdout.encoding or "utf-8")


def cut_sentence(cut: PostProcessingCut) -> str:
    from sgsdump.errors import listed

    name, kind = cut.first
    others = [layer for layer in cut.layers if layer != name]
    also = f"; also left out: {listed(others, MOST_LAYERS)}" if others else ""
    ends = ", ".join(cut.outputs)
    return f"the network is cut before its post-processing, {name!r} ({kind}), and ends in {ends}{also}"


def print_branches(model: Model) -> None:
    print_lines(model.branches.sentences() if model.branches else (), "note: ")


def print_cut(model: Model, config: InputConfig | None = None) -> None:
    """Say what was cut off and, unless ``config`` names the outputs that the network has now, what to write; and what
    became of Ifs."""
    print_branches(model)
    if model.cut is not None:
        print_lines([f"note: {cut_sentence(model.cut)}", *to_paste(model.cut, config)])


def to_paste(cut: PostProcessingCut, config: InputConfig | None = None) -> Iterator[str]:
    """[OUTPUT_CONFIG] for the outputs that the network has now, unless ``config`` names them."""
    from sgsdump.sidecars.input_config import ModelOutput, output_section

    if config is not None and {output.name for output in config.outputs} >= set(cut.outputs):
        return
    yield "for input_config.ini:"
    yield from output_section([ModelOutput(name, dequantised=True) for name in cut.outputs]).splitlines()
