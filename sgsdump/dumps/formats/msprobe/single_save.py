"""Reader of the files that msprobe's ``SingleSave`` writes, call by call.

::

    DUMP/configurations.json                                    arguments of save_config; not read
    DUMP/data/TAG/step0/rank0/TAG.npy  TAG.json                 save_ex({"TAG": tensor})
    DUMP/data/TAG/step0/rank0/micro_step1/TAG.npy  TAG.json     save({"TAG": tensor}), the second one in its step
    …/TAG.0.npy  TAG.1.npy  TAG.json                            save_ex({"TAG": [tensor, tensor]})
    …/TAG.k.npy  TAG.json                                       save_ex({"TAG": {"k": tensor}})

``TAG.json`` has statistics of the same tensors (max, min, mean, norm, shape) and is not read. SingleSave stores
bfloat16 as float32.

Each save is a run with step and rank. If a step has several saves, the call number is the run's graph
(``micro_step1``). The tensors are outputs, named after their files (``logits``, ``states.0``) and sorted by name. A run
has one folder per tag. Its place is the folder of its first tag; opening any of these folders opens the whole save.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.folder import in_order, inside, leads_out

DATA, ENDING = "data", ".npy"
MOST_FOLDERS = 100_000
_PLACE = re.compile(rf"(.*/{DATA})/([^/]+)/(step\d{{1,9}}/rank\d{{1,9}}(?:/micro_step\d{{1,9}})?)$", re.ASCII)


def recognises(path: Path, head: bytes) -> bool:
    return (path / DATA).is_dir() and any(_saves(path))


def owns(path: Path) -> bool:
    """Return whether a folder is the folder of a tag in a save, judged by its path and files."""
    match = _PLACE.search(path.resolve().as_posix())
    if match is None or not path.is_dir():
        return False
    tag = match[2]
    return any(file.name.startswith(f"{tag}.") for file in islice(path.glob(f"*{ENDING}"), MOST_FOLDERS))


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the saves in a folder as runs."""
    folder_of = dict(sorted(_saves(path), reverse=True))
    return [_run_of(place, folder.relative_to(path).as_posix()) for place, folder in folder_of.items()]


def read(path: Path) -> Dump:
    """Read one save; ``path`` is a folder with a single save, or the folder of a tag. Raises FormatError."""
    notes: list[str] = []
    records: list[Record] = []
    match = _PLACE.search(path.resolve().as_posix()) if owns(path) else None
    if match is None:
        folders = [folder for _, folder in _saves(path)]
    else:
        data = Path(match[1])
        folders = [folder for tag in data.iterdir() if (folder := tag / match[3]).is_dir()]
        folders = [folder for folder in folders if not leads_out(folder, data)]
    files = [file for folder in folders for file in islice(folder.glob(f"*{ENDING}"), MOST_FOLDERS)]
    for file in sorted(files, key=lambda file: in_order(file.name)):
        try:
            tensor = npy_file.plain_tensor(inside(file.parent, file.name), file.name.removesuffix(ENDING), notes)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        records.append(Record("out", 0, len(records), "", tensor))
    if not records:
        raise FormatError(f"{path} holds no tensor" + (f" ({notes[0]})" if notes else ""))
    return Dump(records, FORMAT.name, None, path, notes)


def _saves(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield relative place and folder of each save of each tag. Links to other folders are not followed."""
    for rank in islice((path / DATA).glob("*/step*/rank*"), MOST_FOLDERS):
        inner = list(islice(rank.glob("micro_step*"), MOST_FOLDERS))
        for folder in ([rank] if any(rank.glob(f"*{ENDING}")) else []) + inner:
            match = _PLACE.search(folder.resolve().as_posix())
            if match and folder.is_dir() and not leads_out(folder, path):
                yield match[3], folder


def _run_of(place: str, folder: str) -> Run:
    step, rank, *micro = place.split("/")
    return Run(folder, int(rank.removeprefix("rank")), int(step.removeprefix("step")), "".join(micro))


FORMAT = Format(
    "msprobe_single_save",
    recognises,
    read,
    looks_for=f"{DATA}/TAG/step0/rank0 of msprobe's SingleSave",
    runs=runs,
    owns=owns,
)
