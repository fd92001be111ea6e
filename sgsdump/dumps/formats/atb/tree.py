"""Reader and writer of folder trees of ATB tensors, as msit and msprobe write them.

The tree has one folder per operator, with ``.bin`` files (``atb_bin``) in ``before`` and ``after`` (``location.py``).
The user may open any folder from the dump's root down to a single operator. Each execution of each device is a run:
``data@step=1`` and ``data/0_4711/1`` may be the same run.

There is one record per tensor, in the order in which the operators ran. ``op_index`` counts the operators; ``op_type``
is the operator's name without its id. If tensors were dumped both before and after, inputs are read from before and
outputs from after. An alias has its own shape and type and the values of another file of the same execution. Tensors
that are only in ``statistic.csv`` have statistics; this file may also be opened alone. Notes report unreadable files,
broken aliases, rows without a file and files without a row.

The writer uses the paths from which the dump was read, else ``{name}/after/outtensor0.bin`` below ``0_0/0/``, where the
vendor's tools expect it. A manifest ``sgsdump.json`` (``shared/manifest.py``) holds facts that the files cannot hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format, Lost
from sgsdump.dumps.formats.atb import location as atb_location
from sgsdump.dumps.formats.atb import survey
from sgsdump.dumps.formats.atb import tensor as atb_tensor
from sgsdump.dumps.formats.atb.location import ENDING, Execution, split
from sgsdump.dumps.formats.atb.survey import Row
from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.dumps.formats.shared import hooked, manifest, npy_file
from sgsdump.dumps.formats.shared.ascend_types import RAW
from sgsdump.dumps.formats.shared.hooked import Key
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import make_folder, replacing_folder
from sgsdump.files.folder import files_below, has_file, leads_out
from sgsdump.files.names import Taken, file_stem
from sgsdump.tensors.tensor import Tensor, TensorInfo

NO_TENSOR = "kernel_tilingdata.bin"
_EXECUTION = "0_0/0"
NOT_WRITTEN = "its memory had not been written yet"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Paths:
    """Variant of a dump: the path of each record. Records without a path get one from their name."""

    of: Mapping[Key, str]


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the executions below a folder, from the paths of its files; none for a tree that ``write`` wrote.

    Notes files that belong to no execution.
    """
    if (path / manifest.NAME).is_file():
        return []
    notes.extend(hooked.missing(path))
    by_execution: defaultdict[Execution, list[str]] = defaultdict(list)
    for name in sorted({*files_below(path, (ENDING, survey.NAME), notes), *hooked.equals(path)}):
        if not name.endswith(NO_TENSOR):
            by_execution[split(name.split("/")[:-1])[0]].append(name)
    executions = {one for one in by_execution if one.number} or {one for one in by_execution if one.device}
    stray = [name for execution, names in by_execution.items() if execution not in executions for name in names]
    if executions and stray:
        notes.append(f"{survey.some(stray, 'file')} not part of an execution")
    return [execution.as_run() for execution in executions]


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return head.startswith(survey.HEADER.encode())
    return has_file(path, (ENDING, survey.NAME), _is_of_a_tree) or bool(hooked.equals(path))


def read(path: Path) -> Dump:
    """Read a tree; headers at once, values on request. Raises FormatError if it has no tensor."""
    notes: list[str] = []
    if not path.is_dir():
        records, variant = _theirs(path.parent, [], [path.name], notes)
        return Dump(records, FORMAT.name, variant, path, notes)
    names = sorted(files_below(path, (ENDING, survey.NAME), notes))
    files = [name for name in names if name.endswith(ENDING) and not name.endswith(NO_TENSOR)]
    tables = [name for name in names if not name.endswith(ENDING)]
    notes.extend(hooked.missing(path))
    if (path / manifest.NAME).is_file():
        records, variant = _ours(path, files, notes)
    else:
        records, variant = _theirs(path, files, tables, notes, hooked.equals(path))
    network = partial(hooked.network, path, records, variant.of, _key)
    dump = Dump(records, FORMAT.name, variant, path, notes, network)
    return dump.in_environment(
        partial(hooked.environment, path),
        partial(hooked.between, path),
        partial(hooked.outermost, path),
        partial(hooked.source_lines, path),
    )


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write one file per record, and the manifest. An existing folder is moved aside.

    Raises OutputError if writing fails, ValuesError for types without an ACL number.
    """
    read_from = variant.of if isinstance(variant, Paths) else {}
    names, entries = Taken(), []
    taken: set[str] = set()
    with replacing_folder(Path(path)) as folder:
        for record in records:
            location = read_from.get(_key(record)) or _in_execution(atb_location.path_of(record.name, record.io))
            while not location or location in taken:
                folder_name = names.free(f"{record.op_index}_{file_stem(record.name)}", "")
                location = _in_execution(atb_location.made_path(folder_name, record.io, record.slot))
            taken.add(location)
            entries.append(manifest.entry_of(record, location))
            make_folder((folder / location).parent)
            atb_tensor.save(folder / location, record)
            del record
        if not entries:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        npy_file.save_bytes(folder / manifest.NAME, manifest.text_of(entries))


def loses(records: Sequence[Record], variant: Any = None) -> Iterator[Lost]:
    yield from manifest.facts_lost(records)
    for record in records:
        yield from atb_tensor.lost(record)


def _is_of_a_tree(path: Path) -> bool:
    return (survey if path.name == survey.NAME else atb_tensor).recognised(path)


def _theirs(
    root: Path, files: Sequence[str], tables: Sequence[str], notes: list[str], equal: Mapping[str, str] = _NONE
) -> tuple[list[Record], Paths]:
    contents = survey.examined(root, files, notes)
    sources = survey.examined(root, sorted({same for name, same in equal.items() if name not in contents}), notes)
    contents |= {name: sources[same] for name, same in equal.items() if name not in contents and same in sources}
    locations = {name: atb_location.location_of(name) for name in contents}
    chosen = survey.chosen(locations, notes)
    rows = survey.rows(root, tables, notes)
    survey.say_missing(chosen, rows, notes)
    there = {location.key for location in chosen}
    listed = {location: row for location, row in rows.items() if location.key not in there}
    targets = atb_location.targets_of(chosen)
    unwritten = hooked.unwritten(root) if any(content.described for content in contents.values()) else set()
    numbers: dict[tuple[Execution, tuple[str, ...]], int] = {}
    records, paths = [], {}
    lost: defaultdict[str, list[str]] = defaultdict(list)
    for location in sorted([*chosen, *listed], key=lambda location: location.order):
        number = numbers.setdefault((location.execution, location.operators), len(numbers))
        if location in listed:
            tensor = _of_row(listed[location], location.name, location.op_type)
            records.append(Record(location.io, location.slot, number, location.op_type, tensor))
            continue
        path = chosen[location]
        content, why = atb_location.followed(path, contents, targets, locations)
        is_unwritten = path in unwritten
        why = NOT_WRITTEN if is_unwritten else why
        if why:
            lost[f"has no values: {why}"].append(path)
        tensor = content.tensor(location.name, location.op_type, why)
        record = Record(location.io, location.slot, number, location.op_type, tensor, unwritten=is_unwritten)
        records.append(record)
        paths[_key(record)] = path
    if not records:
        raise FormatError(f"no file in {root} is an ATB tensor ({notes[-1] if notes else 'there is none'})")
    notes.extend(survey.summed(lost))
    return records, Paths(paths)


def _of_row(row: Row, name: str, op_type: str) -> Tensor:
    coding = (row.type and row.type.coding) or RAW
    info = TensorInfo(name, row.shape, coding.dtype, row.layout, op_type=op_type)
    if row.statistics is None:
        return Tensor.without_values(info, f"it is only listed in {survey.NAME}, without statistics")
    return Tensor.of_statistics(info, row.statistics)


def _ours(root: Path, files: Sequence[str], notes: list[str]) -> tuple[list[Record], Paths]:
    """Return the records of the manifest with the values of their files."""
    path = root / manifest.NAME
    if leads_out(path, root):
        raise FormatError(f"{path} is a link to a file outside the folder; such links are not followed")
    there, records, paths = set(files), [], {}
    for record, values in manifest.read(path):
        if values not in there:
            raise FormatError(
                f"{path} names {values[:80]!r}, which is missing. Check that the folder was copied completely"
            )
        records.append(_of_manifest(record, atb_tensor.examine(root / values)))
        paths[_key(record)] = values
    stray = sorted(there - set(paths.values()))
    if stray:
        notes.append(f"{survey.some(stray, 'file')} not listed in {manifest.NAME}")
    return records, Paths(paths)


def _of_manifest(record: Record, content: Content) -> Record:
    info = record.tensor.info
    if content.statistics is not None:
        return replace(record, tensor=Tensor.of_statistics(info, content.statistics))
    if content.alias or content.coding.dtype != info.dtype:
        raise FormatError(
            f"{content.path} does not contain {info.dtype} values, although {manifest.NAME} declares this type"
        )
    manifest.check_count(record, content.count, content.path)
    return replace(record, tensor=Tensor(info, content.tensor(info.name).raw))


def _in_execution(path: str | None) -> str:
    return f"{_EXECUTION}/{path}" if path else ""


def _key(record: Record) -> Key:
    return record.io, record.slot, record.op_index, record.name


FORMAT = Format("atb_tree", recognises, read, write, loses, "ATB .bin files", runs, own_inputs=True)
