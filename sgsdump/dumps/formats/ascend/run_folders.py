"""The folders in which an Ascend device leaves a run, and what their names say of it.

``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/``: data_index is the step,
the model's name and number are the graph, and the device stands for the rank where no rank is known. Dumps of single
operators lie in ``{time}/{device}/``. (docs/formats/ascend.md#file-names-of-a-run)
"""

from __future__ import annotations

import re
from pathlib import Path

from sgsdump.dumps.runs.run import Run

_RANK = re.compile(r"worldsize\d{1,9}_global_rank(\d{1,9})", re.ASCII)
_TIME = re.compile(r"\d{12,17}", re.ASCII)
_NUMBER = re.compile(r"\d{1,11}", re.ASCII)


def run_of(path: Path, place: str) -> Run:
    """The run whose files are at ``place`` below ``path``, by the names of the folders down to it."""
    names = [*path.resolve().parts, *filter(None, place.split("/"))]
    ranks = [match[1] for name in names if (match := _RANK.fullmatch(name))]
    step, graph = None, ""
    if len(names) > 2 and all(map(_NUMBER.fullmatch, names[-2:])):
        *names, model, number, last = names
        step, graph = int(last), f"{model}/{number}"
    of_time = len(names) > 1 and _TIME.fullmatch(names[-2])
    device = names[-1] if of_time and _NUMBER.fullmatch(names[-1]) else None
    rank = ranks[-1] if ranks else device
    return Run(place, None if rank is None else int(rank), step, graph)
