"""A dump folder of the ONNX pipeline: ``dump_info.json``, ``inputs/``, ``outputs/`` (``dump_info.py`` specifies it).

The JSON decides: its tensors are the dump, in its order, inputs first. A file it does not list is of an earlier run; it
is left out and noted, as are the tensors that the run could not dump. A folder of the SDAA tool itself lists no file
names: they follow from the tensors' names. An output's ``op_index`` is its topological index, its ``op_type`` here the
node's name. Scales, constants and what operators read have no place in such a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format, Lost
from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import (
    DATE,
    INPUTS,
    JSON_NAME,
    OUTPUTS,
    DumpInfo,
    InputEntry,
    OutputEntry,
    TensorFacts,
    facts_of,
)
from sgsdump.dumps.formats.shared import manifest, npy_file
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.files.folder import files_below, inside
from sgsdump.files.names import Taken
from sgsdump.tensors.dtypes import KNOWN, is_complex, name_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDING = ".npy"


def recognises(path: Path, head: bytes) -> bool:
    return (path / JSON_NAME).is_file()


def read(path: Path) -> Dump:
    """A dump whose values are read from their files when asked for. Raises FormatError when what the JSON lists is
    missing or damaged."""
    notes: list[str] = []
    try:
        info = dump_info.read(inside(path, JSON_NAME))
    except OverflowError as error:
        raise FormatError(f"{path / JSON_NAME} has a number beyond reason: {error}") from None
    files = files_below(path, ENDING, notes)
    unlisted = dict.fromkeys(name for name in files if name.startswith((f"{INPUTS}/", f"{OUTPUTS}/")))
    by_name = _by_name(unlisted)
    records = [*_inputs(path, info, unlisted, by_name, notes), *_outputs(path, info, unlisted, by_name, notes)]
    if unlisted:
        notes.append(
            f"{len(unlisted)} files are not in {JSON_NAME}, left over from another run: {', '.join([*unlisted][:3])}"
        )
    if not records:
        raise FormatError(f"{path / JSON_NAME} lists no tensor that was dumped")
    return Dump(records, FORMAT.name, info, path, notes)


def _by_name(files: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """File names by folder and by the tensor name they stand for, those with an index first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for file in sorted(files, key=lambda name: dump_info.named(name.partition("/")[2])[0] is None):
        folder, _, name = file.partition("/")
        groups.setdefault((folder, dump_info.named(name)[1]), []).append(file)
    return groups


def _inputs(
    path: Path, info: DumpInfo, unlisted: dict[str, None], by_name: dict[tuple[str, str], list[str]], notes: list[str]
) -> Iterator[Record]:
    for slot, entry in enumerate(info.inputs):
        file = _file(path, entry.file, (INPUTS, entry.name), unlisted, by_name)
        layout = entry.layout if isinstance(entry.layout, str) else None
        yield Record("in", slot, 0, "", _tensor(path / file, entry.name, entry.facts, notes, layout))


def _outputs(
    path: Path, info: DumpInfo, unlisted: dict[str, None], by_name: dict[tuple[str, str], list[str]], notes: list[str]
) -> Iterator[Record]:
    for number, entry in enumerate(info.outputs):
        if entry.error is not None:
            notes.append(f"not dumped: {entry.name}: {' '.join(entry.error.split())[:200]}")
            continue
        file = _file(path, entry.file, (OUTPUTS, entry.name), unlisted, by_name)
        index = dump_info.named(file.partition("/")[2])[0] if entry.topo_index is None else entry.topo_index
        layout = entry.layout if isinstance(entry.layout, str) else None
        tensor = _tensor(path / file, entry.name, entry.facts, notes, layout, entry.op_type)
        yield Record("out", 0, number if index is None else index, entry.node or entry.op_type, tensor)


def _file(
    path: Path,
    file: str | None,
    key: tuple[str, str],
    unlisted: dict[str, None],
    by_name: dict[tuple[str, str], list[str]],
) -> str:
    """The file of an entry, taken from those that are left. Raises FormatError when there is none."""
    chosen = file if file is not None else next((name for name in by_name.get(key, []) if name in unlisted), None)
    if chosen is None or chosen not in unlisted:
        raise FormatError(f"{path}: the file of {key[1]!r} in {key[0]}/ is missing; was the folder copied whole?")
    del unlisted[chosen]
    return chosen


def _tensor(
    path: Path, name: str, facts: TensorFacts | None, notes: list[str], layout: str | None = None, op_type: str = ""
) -> Tensor:
    header, _ = npy_file.header_of(path)
    if facts is not None and facts.dtype in KNOWN:
        npy_file.check_type(header, KNOWN[facts.dtype], path)
        if facts.shape != header.shape:
            notes.append(f"{path} is of shape {list(header.shape)}, {JSON_NAME} says {list(facts.shape)}")
        return npy_file.tensor_of(
            path, header, TensorInfo(name, header.shape, KNOWN[facts.dtype], layout, None, op_type)
        )
    npy_file.check_plain(header, path)
    return npy_file.tensor_of(path, header, TensorInfo(name, header.shape, header.dtype, layout, None, op_type))


def loses(records: Sequence[Record], variant: DumpInfo | None = None) -> Iterator[Lost]:
    """What such a folder has no place for; see ``Format.loses``."""
    yield from manifest.loses(records)
    inputs = 0
    for record, why in _placed(records):
        if why:
            yield Lost(record, why)
            continue
        info = record.tensor.info
        if not _is_unicode(record):
            yield Lost(record, "has a name that is not valid Unicode", True)
        if info.quant is not None:
            yield Lost(record, "has a scale, which is left out")
        if info.shape is None:
            yield Lost(record, "is of unknown shape, kept flat")
        if record.io == "out" and (record.slot or record.cut):
            yield Lost(record, "is one of its operator's several outputs, which are kept as single ones")
        if record.io == "out" and not record.op_type and info.op_type:
            yield Lost(record, "is of an operator without a name, which is called by its type")
        if record.io == "in":
            place = record.slot, record.op_index, record.op_type, info.op_type, record.cut
            if place != (inputs, 0, "", "", False):
                yield Lost(record, "is an operator's input, kept as the net's")
            inputs += 1
        if info.origin is not None:
            yield Lost(record, "has an original shape, which is left out")


def _is_unicode(record: Record) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in record.name + record.op_type + record.tensor.info.op_type)


def _placed(records: Iterable[Record]) -> Iterator[tuple[Record, str]]:
    """Each record, and why it is left out, or "" when it has its place."""
    names: set[str] = set()
    outputs = False
    for record in records:
        why = ""
        if record.constant:
            why = "is a constant, which is left out"
        elif record.io == "in" and record.name in names:
            why = "is an operator's input, which is left out (it stands there as an output or input already)"
        elif record.io == "in" and outputs:
            why = "is an input after outputs, which is left out"
        else:
            names.add(record.name)
            outputs = outputs or record.io == "out"
        yield record, why
        del record


def write(records: Iterable[Record], path: Path, variant: DumpInfo | None = None) -> None:
    """Write a file per tensor and the JSON. An existing folder is set aside. ``variant`` is that of a folder that was
    read: what its JSON says of the run is kept.

    Raises OutputError when the disk refuses, ConfigError for values that no .npy file holds.
    """
    previous = variant or DumpInfo({"date_time": datetime.now().strftime(DATE)})
    inputs, outputs, taken = list[InputEntry](), list[OutputEntry](), Taken()
    with replacing_folder(Path(path)) as folder:
        for part in (INPUTS, OUTPUTS):
            (folder / part).mkdir()
        for record, why in _placed(records):
            if why:
                continue
            if not _is_unicode(record):
                raise OutputError(f"cannot write tensor {record.name!r}: its name is not valid Unicode; rename it")
            if record.io == "in":
                inputs.append(_write_input(folder, record, previous, taken))
            else:
                outputs.append(_write_output(folder, record, previous, taken))
            del record
        if not inputs and not outputs:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        outputs += [entry for entry in previous.outputs if entry.error is not None]
        dump_info.write(DumpInfo(previous.meta, tuple(inputs), tuple(outputs)), folder)


def _write_input(folder: Path, record: Record, previous: DumpInfo, taken: Taken) -> InputEntry:
    entry = next(
        (e for e in previous.inputs if e.name == record.name), InputEntry(record.name, None, use_external=True)
    )
    file = f"{INPUTS}/" + taken.free(dump_info.inputs_file(record.name).removesuffix(ENDING), ENDING)
    layout = record.tensor.info.layout
    return replace(entry, facts=_write_values(folder / file, record), file=file, layout=layout)


def _write_output(folder: Path, record: Record, previous: DumpInfo, taken: Taken) -> OutputEntry:
    name, index = record.name, record.op_index
    entry = next((e for e in previous.outputs if (e.name, e.topo_index) == (name, index)), OutputEntry(name))
    file = f"{OUTPUTS}/" + taken.free(dump_info.outputs_file(index, name).removesuffix(ENDING), ENDING)
    info, facts = record.tensor.info, _write_values(folder / file, record)
    described = {"node": record.op_type, "op_type": info.op_type, "topo_index": index, "layout": info.layout}
    return replace(entry, facts=facts, file=file, error=None, **described)  # type: ignore[arg-type]


def _write_values(path: Path, record: Record) -> TensorFacts:
    array = record.tensor.stored()
    npy_file.save(path, array)
    if is_complex(array.dtype):
        return TensorFacts(name_of(array.dtype), array.shape)
    return facts_of(array)


FORMAT = Format("dump_info_dir", recognises, read, write, loses, JSON_NAME)
