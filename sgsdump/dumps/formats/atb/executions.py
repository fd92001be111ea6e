"""The executions in a tree of ATB tensors, each a run of its own."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from sgsdump.dumps.formats.arrays import manifest
from sgsdump.dumps.formats.atb import hooked, statistic, survey
from sgsdump.dumps.formats.atb.place import ENDING, Execution, split
from sgsdump.dumps.runs.run import Run
from sgsdump.files.folder import files_below

NO_TENSOR = "kernel_tilingdata.bin"


def runs(path: Path, notes: list[str]) -> list[Run]:
    """The executions below a folder, by the paths of its files; none in what ``tree.write`` wrote.

    Where there are some, files that belong to none of them are noted.
    """
    if (path / manifest.NAME).is_file():
        return []
    notes.extend(hooked.missing(path))
    by_execution: defaultdict[Execution, list[str]] = defaultdict(list)
    for name in sorted({*files_below(path, (ENDING, statistic.NAME), notes), *hooked.equals(path)}):
        if not name.endswith(NO_TENSOR):
            by_execution[split(name.split("/")[:-1])[0]].append(name)
    apart = {one for one in by_execution if one.number} or {one for one in by_execution if one.device}
    stray = [name for one, names in by_execution.items() if one not in apart for name in names]
    if apart and stray:
        notes.append(f"{survey.some(stray, 'file')} of no execution")
    return [one.as_run() for one in apart]
