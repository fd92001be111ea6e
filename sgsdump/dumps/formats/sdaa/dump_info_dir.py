"""Reader and writer of dump folders of the SDAA tool and ``sgsdump pipeline``: ``dump_info.json``, inputs, outputs.

``dump_info.py`` specifies the folder. The dump consists of the tensors in the JSON, in their order, inputs first. Files
that the JSON does not list come from an earlier run; they are skipped with a note, like tensors that could not be
dumped. The SDAA tool's JSON has no file names; they follow from the tensor names. ``op_index`` of an output is its
topological index, ``op_type`` the node's name. The format cannot hold scales, constants and operator inputs.
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
    """Read a dump folder; values are loaded on request. Raises FormatError if a listed file is missing or damaged."""
    notes: list[str] = []
    info = dump_info.read(inside(path, JSON_NAME))
    unlisted = _Unlisted(path, files_below(path, ENDING, notes))
    records = [*_inputs(path, info, unlisted, notes), *_outputs(path, info, unlisted, notes)]
    if unlisted.names:
        first = ", ".join([*unlisted.names][:3])
        notes.append(f"left out: {len(unlisted.names)} files of another run, not listed in {JSON_NAME}: {first}")
    if not records:
        raise FormatError(f"{path / JSON_NAME} lists no dumped tensor")
    return Dump(records, FORMAT.name, info, path, notes)


class _Unlisted:
    """Files of a folder that are not yet assigned to an entry of the JSON."""

    def __init__(self, path: Path, files: Iterable[str]):
        self._path = path
        self.names = dict.fromkeys(name for name in files if name.startswith((f"{INPUTS}/", f"{OUTPUTS}/")))
        self._by_tensor: dict[tuple[str, str], list[str]] = {}
        # files with a topological index first
        for file in sorted(self.names, key=lambda name: dump_info.named(name.partition("/")[2])[0] is None):
            folder, _, name = file.partition("/")
            self._by_tensor.setdefault((folder, dump_info.named(name)[1]), []).append(file)

    def take(self, folder: str, entry: InputEntry | OutputEntry) -> str:
        """Assign a file to an entry, by file name, else by tensor name. Raises FormatError if there is none."""
        candidates = self._by_tensor.get((folder, entry.name), []) if entry.file is None else [entry.file]
        file = next((name for name in candidates if name in self.names), None)
        if file is None:
            missing = f"the file of {entry.name!r} in {folder}/ is missing. Check that the folder was copied completely"
            raise FormatError(f"{self._path}: {missing}")
        del self.names[file]
        return file


def _inputs(path: Path, info: DumpInfo, unlisted: _Unlisted, notes: list[str]) -> Iterator[Record]:
    for slot, entry in enumerate(info.inputs):
        file = unlisted.take(INPUTS, entry)
        yield Record("in", slot, 0, "", _tensor(path / file, entry, "", notes))


def _outputs(path: Path, info: DumpInfo, unlisted: _Unlisted, notes: list[str]) -> Iterator[Record]:
    for number, entry in enumerate(info.outputs):
        if entry.error is not None:
            notes.append(f"not dumped: {entry.name}: {' '.join(entry.error.split())[:200]}")
            continue
        file = unlisted.take(OUTPUTS, entry)
        index = dump_info.named(file.partition("/")[2])[0] if entry.topo_index is None else entry.topo_index
        tensor = _tensor(path / file, entry, entry.op_type, notes)
        yield Record("out", 0, number if index is None else index, entry.node or entry.op_type, tensor)


def _tensor(path: Path, entry: InputEntry | OutputEntry, op_type: str, notes: list[str]) -> Tensor:
    header, _ = npy_file.header_of(path)
    facts, dtype = entry.facts, header.dtype
    if facts is not None and facts.dtype in KNOWN:
        dtype = KNOWN[facts.dtype]
        npy_file.check_type(header, dtype, path)
        if facts.shape != header.shape:
            notes.append(f"{path} has shape {list(header.shape)}, but {JSON_NAME} says {list(facts.shape)}")
    else:
        npy_file.check_plain(header, path)
    layout = entry.layout if isinstance(entry.layout, str) else None
    return npy_file.tensor_of(path, header, TensorInfo(entry.name, header.shape, dtype, layout, None, op_type))


def loses(records: Sequence[Record], variant: DumpInfo | None = None) -> Iterator[Lost]:
    """Yield the losses in a dump folder; see ``Format.loses``."""
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
            yield Lost(record, "has an unknown shape and is kept flat")
        if record.io == "out" and (record.slot or record.cut):
            yield Lost(record, "is one of several outputs of its operator; each is kept as an operator of its own")
        if record.io == "out" and not record.op_type and info.op_type:
            yield Lost(record, "belongs to an unnamed operator, which gets its type as name")
        if record.io == "in":
            if (record.slot, record.op_index, record.op_type, info.op_type, record.cut) != (inputs, 0, "", "", False):
                yield Lost(record, "is an operator's input, kept as a model input")
            inputs += 1
        if info.origin is not None:
            yield Lost(record, "has an original shape, which is left out")


def _is_unicode(record: Record) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in record.name + record.op_type + record.tensor.info.op_type)


def _placed(records: Iterable[Record]) -> Iterator[tuple[Record, str]]:
    """Yield each record with the reason why the folder cannot hold it, or ""."""
    names: set[str] = set()
    outputs = False
    for record in records:
        why = ""
        if record.constant:
            why = "is a constant, which is left out"
        elif record.io == "in" and record.name in names:
            why = "is an operator's input, which is left out (it is already there as an output or input)"
        elif record.io == "in" and outputs:
            why = "is an input after outputs, which is left out"
        else:
            names.add(record.name)
            outputs = outputs or record.io == "out"
        yield record, why
        del record


def write(records: Iterable[Record], path: Path, variant: DumpInfo | None = None) -> None:
    """Write one file per tensor, and the JSON. An existing folder is moved aside.

    ``variant`` comes from a folder that was read; facts about its run are kept. Raises OutputError if writing fails,
    ConfigError for values that a .npy file cannot hold.
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
                raise OutputError(
                    f"cannot write tensor {record.name!r}: its name is not valid Unicode. Rename the tensor"
                )
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
