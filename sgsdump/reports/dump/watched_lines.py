"""What changed the outputs that a watcher took, as text: a line for each change."""

from __future__ import annotations

from sgsdump.dumps.watched_changes import Change, WatchedChanges
from sgsdump.files.escaping import shown


def render(found: WatchedChanges) -> str:
    lines = [_line(change) for change in found.changes]
    counted = f"{found.outputs} output{'' if found.outputs == 1 else 's'} watched, looked at {found.looks} times"
    if found.first is None:
        return f"No watched output was changed by a listed operator ({counted}).\n"
    lines.append(f"Watched outputs were changed {len(lines)} times ({counted}).")
    lines.append(f"The first to change one is {shown(found.first.operator)}: {shown(found.first.name)}.")
    return "".join(f"{line}\n" for line in lines)


def _line(change: Change) -> str:
    how = "its statistics differ"
    if change.total:
        largest = "" if change.largest is None else f", largest difference {change.largest:.6g}"
        how = f"{change.values} of {change.total} values differ{largest}"
    who = f"{shown(change.operator)} ({shown(change.op_type)})"
    return f"{shown(change.name)} changed when {who} had run, not yet after {shown(change.unchanged)}: {how}"
