"""What ``sgsdump exec`` says: on standard error, for standard output is the program's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sgsdump.files.escaping import for_terminal

if TYPE_CHECKING:
    from sgsdump.capture.control import DumpControl
    from sgsdump.capture.program import Captured

LEVELS = ("debug", "info", "warning", "error", "fatal", "critical")


class Say:
    """Prints messages; those below the level are left out."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS.index(level)

    def __call__(self, level: str, text: str) -> None:
        if LEVELS.index(level) >= self._least:
            sys.stdout.flush()
            prefix = "" if level == "info" else f"{level}: "
            print(for_terminal(f"sgsdump: {prefix}{text}"), file=sys.stderr)


def chosen(control: DumpControl) -> str:
    """What may be why: the steps and operators that were chosen, and when nothing was to be dumped at all."""
    if not control.enabled:
        return ": the configuration switches the dump off"
    steps = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in control.steps.ranges)
    words = [f"steps {steps} (counted from 0; -er)"] if steps and steps != "0" else []
    words += [f"operators {', '.join(control.ids)} (-ids)"] if control.ids else []
    words += [f"devices {', '.join(map(str, control.devices))} (-device)"] if control.devices else []
    words += [f"ranks {', '.join(map(str, control.ranks))} (--rank)"] if control.ranks else []
    return f"; chosen were {', '.join(words)}" if words else ""


def ran(captured: Captured) -> str:
    """How many steps there were to choose from."""
    return f"; the program ran {steps_in_words(range(captured.steps))}" if captured.steps else ""


def never_reached(control: DumpControl, captured: Captured) -> Iterator[str]:
    """A sentence for each range of steps that was asked for and lies behind the last that ran."""
    for first, last in control.steps.ranges if captured.steps is not None else ():
        if first >= (captured.steps or 0):
            which = f"step {first}" if first == last else f"the steps {first} to {last}"
            yield f"{which} never ran (-er){ran(captured)}"


def more_ran(captured: Captured) -> Iterator[str]:
    """That more steps ran than were dumped, where a process dumped some."""
    more = [one for one in captured.processes if one.steps and (one.begun or 0) > len(one.steps)]
    if more:
        most = max(more, key=lambda process: process.begun or 0)
        dumped = f"{len(most.steps)} {'was' if len(most.steps) == 1 else 'were'} dumped"
        hint = "-er all dumps every one, -er A,B those from A to B"
        yield f"the program ran {most.begun} steps, of which {dumped}; {hint}"


def steps_in_words(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no step"
