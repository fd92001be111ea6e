"""What msprobe's ``SingleSave`` saved of a program, call by call; read only.

::

    DUMP/configurations.json                                    what save_config was given; not read
    DUMP/data/TAG/step0/rank0/TAG.npy  TAG.json                 save_ex({"TAG": tensor})
    DUMP/data/TAG/step0/rank0/micro_step1/TAG.npy  TAG.json     save({"TAG": tensor}), the second one in its step
    …/TAG.0.npy  TAG.1.npy  TAG.json                            save_ex({"TAG": [tensor, tensor]})
    …/TAG.k.npy  TAG.json                                       save_ex({"TAG": {"k": tensor}})

``TAG.json`` has statistics of the same tensors (max, min, mean, norm, shape) and is not read. bfloat16 is saved as
float32.

A save is a run: of a step, a rank and, where it was one of several in its step, the count of the call
(``micro_step1``, the run's graph). Its tensors are outputs named as their files, ``logits``, ``states.0``, in the order
of these names. A run has a folder in each tag's; named is that of its first tag, and opening it opens the whole save.
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
    """Whether a folder is that of a tag in a save, by its name and by files of the tag's."""
    match = _PLACE.search(path.resolve().as_posix())
    if match is None or not path.is_dir():
        return False
    tag = match[2]
    return any(file.name.startswith(f"{tag}.") for file in islice(path.glob(f"*{ENDING}"), MOST_FOLDERS))


def runs(path: Path, notes: list[str]) -> list[Run]:
    """The saves in a folder."""
    folder_of = dict(sorted(_saves(path), reverse=True))
    return [_run_of(place, folder.relative_to(path).as_posix()) for place, folder in folder_of.items()]


def read(path: Path) -> Dump:
    """The tensors of one save; ``path`` is a folder that has only one, or that of a tag in it. Raises FormatError."""
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
    """The place of each save below each tag, and the folder that it is; links out of the folder are not followed."""
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
