r"""The names of operator dump files, and of the folders of a run.

::

    {op_type}.{op_name}.{task}[.{stream}].{time}[.{task_type}.{context}.{thread}.{device}]

``time`` is in microseconds (16 digits), the local time YYYYmmddHHMMSSmmm of an exception (17), or a nano device's
counter (9). The four last parts stand where the operator ran in slices (FFTS+). ``/``, ``.``, ``\`` and blanks of an
operator's name are ``_`` in the file's. A watcher names what it dumps of C after A ran ``A_To_C``. Names over 255
characters are replaced, as listed in ``mapping.csv``.

A run lies in ``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/``:
data_index is the step, the model's name and number are the graph, and the device stands for the rank where no rank is
known. Dumps of single operators lie in ``{time}/{device}/``. (docs/formats/ascend.md#file-names-of-a-run)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sgsdump.dumps.runs import Run
from sgsdump.files.bounded_read import read_start

MAPPING = "mapping.csv"
STATUS_TYPE = "Opdebug"
MOST_BYTES = 2**26
_IN_FILES = re.compile(r"[/.\\\s]")
_NAME = re.compile(
    r"(?P<op_type>[^./]+)\.(?P<op_name>[^/]+?)\.(?P<task>\d{1,20})(?:\.(?P<stream>\d{1,20}))?\.(?P<time>\d{9,17})"
    r"(?:\.\d{1,3}\.(?P<context>\d{1,8})\.(?P<thread>\d{1,8})\.\d{1,8})?",
    re.ASCII,
)
_RANK = re.compile(r"worldsize\d{1,9}_global_rank(\d{1,9})", re.ASCII)
_TIME = re.compile(r"\d{12,17}", re.ASCII)
_NUMBER = re.compile(r"\d{1,11}", re.ASCII)


class FileName(NamedTuple):
    """The facts in a file's name; ``slice`` is ``context.thread`` of an operator that ran in slices, else ""."""

    op_type: str
    op_name: str
    task: int
    stream: int | None
    time: int
    slice: str

    @property
    def is_status(self) -> bool:
        """Whether the file holds an overflow status, of which a run may have many."""
        return self.op_type == STATUS_TYPE

    def watched(self, op_name: str) -> str:
        """``{listed}_To_{watched}`` of a watcher's file whose header has the watched operator's name alone."""
        ending = f"_To_{_IN_FILES.sub('_', op_name)}"
        return self.op_name.removesuffix(ending) + f"_To_{op_name}" if self.op_name.endswith(ending) else op_name

    def name_of(self, op_name: str) -> str:
        """The beginning of the names of the file's tensors; ``op_name`` is the operator's as far as it is known."""
        if self.is_status:
            return f"{op_name}.{self.task}.{self.stream or 0}"
        return f"{op_name}.{self.slice}" if self.slice else op_name


def file_name(op_type: str, op_name: str, task: int, stream: int, time: int) -> str:
    """The name of an operator's dump file; ``time`` in microseconds."""
    return f"{_IN_FILES.sub('_', op_type)}.{_IN_FILES.sub('_', op_name)}.{task}.{stream}.{time:016d}"


def parse(name: str) -> FileName | None:
    """The parts of a dump file's name; None when it is not one."""
    match = _NAME.fullmatch(name) if len(name) <= 4096 else None
    if match is None:
        return None
    op_type, op_name, task, stream, time, context, thread = match.groups()
    of_slice = "" if context is None else f"{int(context)}.{int(thread)}"
    return FileName(op_type, op_name, int(task), None if stream is None else int(stream), int(time), of_slice)


def read_mapping(folder: Path) -> dict[str, str]:
    """``mapping.csv`` of a folder: the names that were too long, by those the files have instead. Empty without one.

    A later row of the same file wins, as tools append to it. Raises OSError.
    """
    path = folder / MAPPING
    if not path.is_file():
        return {}
    text = read_start(path, MOST_BYTES).decode("utf-8-sig", "surrogateescape")
    rows = [line.partition(",") for line in text.splitlines()]
    return {new.strip(): original.strip() for new, comma, original in rows if comma}


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
