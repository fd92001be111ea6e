r"""Parser of the names of Ascend operator dump files and of the folders of a run.

::

    {op_type}.{op_name}.{task}[.{stream}].{time}[.{task_type}.{context}.{thread}.{device}]

``time`` is in microseconds (16 digits), the local time YYYYmmddHHMMSSmmm of an exception (17 digits), or the counter of
a nano device (9 digits). The last four parts exist if the operator ran in slices (FFTS+). The characters ``/``, ``.``,
``\`` and blank of an operator's name become ``_``. A watcher's dump of C's output after A ran has the operator name
``A_To_C``. Names over 255 characters are replaced as listed in ``mapping.csv``.

The folder of a run is ``{dump_path}[/worldsizeN_global_rankR]/{time}/{device}/{model_name}/{model_id}/{data_index}/``.
``data_index`` is the step; name and id of the model form the graph; the device replaces an unknown rank. Dumps of
single operators lie in ``{time}/{device}/``. (docs/formats/ascend.md#file-names-of-a-run)
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
    """Parts of a dump file's name; ``slice`` is ``context.thread`` if the operator ran in slices, else ""."""

    op_type: str
    op_name: str
    task: int
    stream: int | None
    time: int
    slice: str

    @property
    def is_status(self) -> bool:
        """Whether the file holds an overflow status; a run may have many."""
        return self.op_type == STATUS_TYPE

    def watched(self, op_name: str) -> str:
        """Return ``{listed}_To_{watched}`` for a watcher's file, whose header names only the watched operator."""
        ending = f"_To_{_IN_FILES.sub('_', op_name)}"
        return self.op_name.removesuffix(ending) + f"_To_{op_name}" if self.op_name.endswith(ending) else op_name

    def name_of(self, op_name: str) -> str:
        """Return the prefix of the file's tensor names; ``op_name`` is the best known operator name."""
        if self.is_status:
            return f"{op_name}.{self.task}.{self.stream or 0}"
        return f"{op_name}.{self.slice}" if self.slice else op_name


def file_name(op_type: str, op_name: str, task: int, stream: int, time: int) -> str:
    """Return the name of an operator's dump file; ``time`` in microseconds."""
    return f"{_IN_FILES.sub('_', op_type)}.{_IN_FILES.sub('_', op_name)}.{task}.{stream}.{time:016d}"


def parse(name: str) -> FileName | None:
    """Return the parts of a dump file's name; None for any other name."""
    match = _NAME.fullmatch(name) if len(name) <= 4096 else None
    if match is None:
        return None
    op_type, op_name, task, stream, time, context, thread = match.groups()
    of_slice = "" if context is None else f"{int(context)}.{int(thread)}"
    return FileName(op_type, op_name, int(task), None if stream is None else int(stream), int(time), of_slice)


def read_mapping(folder: Path) -> dict[str, str]:
    """Return the original long names by file name, from ``mapping.csv`` of a folder; {} if it is missing.

    The last row of a file wins, because tools append rows. Raises OSError.
    """
    path = folder / MAPPING
    if not path.is_file():
        return {}
    text = read_start(path, MOST_BYTES).decode("utf-8-sig", "surrogateescape")
    rows = [line.partition(",") for line in text.splitlines()]
    return {new.strip(): original.strip() for new, comma, original in rows if comma}


def run_of(path: Path, place: str) -> Run:
    """Return the run that the folder names of ``place``, below ``path``, identify."""
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
