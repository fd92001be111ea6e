"""msit's files beside ``tensors/``, built from the hooks' index.

::

    msit_dump_{time}/
      tensors/{device}_{pid}/{step}/{id}_{name}/…          written by the hooks themselves
      model/{pid}/{model}.json                             and .onnx with --type onnx
      layer/{pid}/{operation}.json                         and .onnx
      operation_io_tensors/{pid}/operation_tensors_{step}.csv
      cpu_profiling/{pid}/operation_statistic_{step}.csv
      processes/{pid}/index.jsonl, control.json            the hooks' own
      index.json                                           written last: contents, and whether they are complete

If the steps of a model run different operators (prefill and decoding), each form gets a JSON: the second is
``{model}~2.json``. Characters that some system forbids in file names become ``_``, as in ``_lambda_``. Params are those
of the first step of a form.

The JSON of models and layers has the format of ATB's probes (docs/formats/ascend.md#atb-graphs). In a model's JSON a
tensor has one name: ``{model}_input_{i}`` for an input of the model, its own name for a weight,
``{operation}_output_{i}`` of the producing operation for all others. In a layer's JSON the names are
``{layer}_input_{i}``, ``{layer}_output_{i}`` and ``{layer}_internal_{i}``, also within its children.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.process_index import Line, Process, Step, steps_of
from sgsdump.errors import OutputError, SgsdumpError
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.files.escaping import csv_lines, escaped
from sgsdump.files.names import Taken, file_stem
from sgsdump.models.atb.operation_csv import COLUMNS, Tensors
from sgsdump.tensors.dtypes import KNOWN

_DEEPEST = 100
Names = Mapping[object, str]
Readers = Mapping[object, int]


@dataclass(frozen=True)
class Value:
    """A tensor that operations read or write, identical for all of them, whatever they call it.

    key     equal for equal values; ``weight``: name of a weight in the program, "" for a computed value.
    """

    key: object
    dtype: str
    shape: tuple[int, ...]
    file: str | None
    weight: str = ""


@dataclass
class Operation:
    """An operation of a step.

    ``name`` is type and ids, ``addmm_3_1``, as in ATB; ``module`` is its path in the program.
    """

    name: str
    op_type: str
    module: str = ""
    param: Any = None
    nanoseconds: int | None = None
    reads: dict[int, Value] = field(default_factory=dict)
    writes: dict[int, Value] = field(default_factory=dict)
    inside: dict[str, Operation] = field(default_factory=dict)

    def inputs(self) -> list[Value]:
        """Return the values that it reads but does not produce, each once."""
        if not self.inside:
            return [value for _, value in sorted(self.reads.items())]
        produced = {value.key for operation in self.inside.values() for value in operation.outputs()}
        read = {value.key: value for operation in self.inside.values() for value in operation.inputs()}
        return [value for key, value in read.items() if key not in produced]

    def outputs(self) -> list[Value]:
        """Return the values that it produces, each once."""
        if not self.inside:
            return [value for _, value in sorted(self.writes.items())]
        return list({value.key: value for operation in self.inside.values() for value in operation.outputs()}.values())

    def walk(self) -> Iterator[Operation]:
        """Yield the operation and all operations inside, outer ones first."""
        yield self
        for operation in self.inside.values():
            yield from operation.walk()

    def leaves(self) -> Iterator[Operation]:
        """Yield the innermost operations in order; the operation itself if it has none inside."""
        if not self.inside:
            yield self
        for operation in self.inside.values():
            yield from operation.leaves()


def operations_of(step: Step) -> list[Operation]:
    """Return the outermost operations of a step, sorted by id."""
    root = Operation(step.model, step.model)
    for line in (*step.tensors, *step.operators):
        operation = _operation_of(root, line)
        if operation is None:
            continue
        if "side" in line:
            _add_tensor(operation, line)
        else:
            nanoseconds = line.get("nanoseconds")
            operation.param = line.get("param")
            operation.nanoseconds = nanoseconds if isinstance(nanoseconds, int) else None
    return sorted(root.inside.values(), key=_sort_key)


def model_document(
    model: str, operations: Sequence[Operation], outputs: Sequence[object] | None = None
) -> dict[str, Any]:
    """Return the JSON of a model's step from its outermost operations.

    ``outputs`` are the keys of the step's results; without them, all values that are produced and never read.
    """
    readers, produced = readers_of(operations), _names_of_outputs(operations)
    read = _unique(value for operation in operations for value in operation.inputs())
    from_outside = {key: value for key, value in read.items() if key not in produced}
    weights = {key: value.weight for key, value in from_outside.items() if value.weight}
    inputs = _numbered(f"{model}_input", [key for key in from_outside if key not in weights])
    names = {**produced, **inputs, **weights}
    returned = [key for key in outputs or () if key in names]
    results = dict.fromkeys(returned or [key for key in produced if not readers.get(key)])
    return {
        "modelName": model,
        "inTensors": list(inputs.values()),
        "outTensors": [names[key] for key in results],
        "internalTensors": [names[key] for key in produced if key in read and key not in results],
        "weightTensors": list(weights.values()),
        "nodes": [_node(operation, names, readers) for operation in operations],
    }


def layer_document(layer: Operation, readers: Readers) -> dict[str, Any]:
    """Return the JSON of one outermost operation; ``readers`` are those of the whole step."""
    inputs = list(_unique(layer.inputs()))
    outputs, internal = _outputs(layer, readers)
    names = {
        **_numbered(f"{layer.name}_internal", internal),
        **_numbered(f"{layer.name}_output", outputs),
        **_numbered(f"{layer.name}_input", inputs),
    }
    return _node(layer, names, readers)


def readers_of(operations: Iterable[Operation]) -> Counter[object]:
    """Count how often the innermost operations read each value."""
    leaves = (leaf for operation in operations for leaf in operation.leaves())
    return Counter(value.key for leaf in leaves for value in leaf.reads.values())


def _sort_key(operation: Operation) -> int:
    number = operation.name.rpartition("_")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else -1


def _add_tensor(operation: Operation, line: Line) -> None:
    """Add the input or output of a line to an operation."""
    side, slot, number = line["side"], line.get("slot"), line.get("value")
    if not isinstance(slot, int):
        return
    values = operation.reads if side == "in" else operation.writes
    key = number if isinstance(number, int) else (operation.name, side, slot)
    shape, file = line.get("shape"), line.get("same") or line.get("file")
    dims = tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, list) else ()
    path = file if isinstance(file, str) else None
    # If a tensor is dumped before and after, inputs count as before the operation, outputs as after.
    if slot not in values or line.get("moment") == ("before" if side == "in" else "after"):
        values[slot] = Value(key, str(line.get("dtype") or ""), dims, path, str(line.get("weight") or ""))


def _operation_of(root: Operation, line: Line) -> Operation | None:
    """Return the operation of a line; create it and its outer ones if new."""
    folders = line.get("folders")
    if not isinstance(folders, list) or not 0 < len(folders) <= _DEEPEST:
        return None
    if not all(isinstance(folder, str) for folder in folders):
        return None
    operation, ids = root, []
    for folder in folders:
        number, _, name = folder.partition("_")
        ids.append(number)
        if folder not in operation.inside:
            operation.inside[folder] = Operation(f"{name}_{'_'.join(ids)}", name)
        operation = operation.inside[folder]
    operation.op_type = str(line.get("type") or operation.op_type)
    operation.module = str(line.get("module") or operation.module)
    return operation


def _unique(values: Iterable[Value]) -> Mapping[object, Value]:
    """Return the values by key, each once, in order."""
    by_key: dict[object, Value] = {}
    for value in values:
        by_key.setdefault(value.key, value)
    return by_key


def _outputs(operation: Operation, readers: Readers) -> tuple[list[object], list[object]]:
    """Return the values of an operation that are read outside or nowhere, and the internal ones."""
    inside = readers_of([operation])
    produced = _unique(operation.outputs())
    leaving = [key for key in produced if not readers.get(key) or inside[key] < readers[key] or not operation.inside]
    return leaving, [key for key in produced if key not in set(leaving)]


def _names_of_outputs(operations: Iterable[Operation]) -> dict[object, str]:
    """Return the name of each produced value, from the first innermost operation that produces it."""
    names: dict[object, str] = {}
    for operation in operations:
        for leaf in operation.leaves():
            for slot, value in sorted(leaf.writes.items()):
                names.setdefault(value.key, f"{leaf.name}_output_{slot}")
    return names


def _node(operation: Operation, names: Names, readers: Readers) -> dict[str, Any]:
    outputs, internal = _outputs(operation, readers)
    param = operation.param
    node = {
        "opName": operation.name,
        "opType": operation.op_type,
        "param": "" if param is None else param,
        "inTensors": [names[value.key] for value in operation.inputs()],
        "outTensors": [names[key] for key in outputs],
    }
    if operation.inside:
        node["internalTensors"] = [names[key] for key in internal]
        node["nodes"] = [_node(inner, names, readers) for inner in operation.inside.values()]
    return node


def _numbered(stem: str, keys: Sequence[object]) -> dict[object, str]:
    return {key: f"{stem}_{number}" for number, key in enumerate(keys)}


PROFILING_COLUMNS = ("OpName", "OpType", "Module", "HostTimeUs")
INDEX = "index.json"
_MOST_TOPOLOGIES = 20
_FROM_STEPS = {"model", "layer", "onnx", "op", "cpu_profiling"}


def new_tree(output: Path) -> Path:
    """Create a folder ``msit_dump_{time}`` in ``output``, which is created if needed. Raises OutputError."""
    make_folder(output)
    stamp = datetime.now().strftime("%Y%m%d_%H%M%S")
    for number in range(1000):
        root = output / f"msit_dump_{stamp}{f'_{number}' if number else ''}"
        try:
            root.mkdir(mode=0o750)
            return root
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(
                f"cannot write into {output}: {error.strerror or error}; use another folder with -o"
            ) from None
    raise OutputError(f"cannot write into {output}: it already contains 1000 dumps with the timestamp of this second")


def write_beside(root: Path, processes: Sequence[Process], types: Iterable[str], command: Sequence[str] = ()) -> None:
    """Write all of ``types`` except the tensors, then the index, which records the ``command``. Raises OutputError."""
    kinds = set(types)
    for process in processes if kinds & _FROM_STEPS else ():
        topologies = _Topologies(root, process, kinds)
        for step in steps_of(process, one_of_each=not kinds & {"op", "cpu_profiling"}):
            operations = operations_of(step)
            topologies.add(step, operations)
            if "op" in kinds:
                table = operation_table(step.model, operations)
                _append(root / "operation_io_tensors" / str(process.pid), f"operation_tensors_{step.number}.csv", table)
            if "cpu_profiling" in kinds:
                table = profiling_table(operations)
                _append(root / "cpu_profiling" / str(process.pid), f"operation_statistic_{step.number}.csv", table)
    write_index(root, processes, sorted(kinds), command)


def write_index(root: Path, processes: Sequence[Process], types: Sequence[str], command: Sequence[str]) -> None:
    """Write ``index.json``: the contents of the tree, and whether they are complete."""
    document = {
        "command": list(command),
        "complete": bool(processes) and all(process.complete and not process.stopped for process in processes),
        "types": list(types),
        "processes": [_facts(process) for process in processes],
    }
    _save(root / INDEX, json.dumps(document, indent=1) + "\n")


def _facts(process: Process) -> Mapping[str, Any]:
    return {
        "pid": process.pid,
        "libraries": list(process.libraries),
        "steps": list(process.steps),
        "tensors": process.counts.tensors,
        "files": process.counts.files,
        "complete": process.complete,
        "stopped": process.stopped,
        "troubles": list(process.troubles),
    }


class _Topologies:
    """JSON files of one process: models and layers, one file per form of their steps."""

    def __init__(self, root: Path, process: Process, types: set[str]) -> None:
        self._root, self._pid, self._types = root, str(process.pid), types
        self._models: dict[str, set[str]] = {}
        self._layers: dict[str, set[str]] = {}
        self._names = {"model": Taken(), "layer": Taken()}

    def add(self, step: Step, operations: Sequence[Operation]) -> None:
        onnx = "onnx" in self._types
        if not operations or not (onnx or self._types & {"model", "layer"}):
            return
        model = step.model or "model"
        if onnx or "model" in self._types:
            self._save("model", model, model_document(model, operations, step.outputs), operations, self._models)
        readers = readers_of(operations)
        for layer in operations:
            self._save("layer", layer.name, layer_document(layer, readers), [layer], self._layers)

    def _save(
        self,
        kind: str,
        name: str,
        document: Mapping[str, Any],
        operations: Sequence[Operation],
        forms_of_name: dict[str, set[str]],
    ) -> None:
        form = json.dumps(_without_params(document))
        forms = forms_of_name.setdefault(name, set())
        if form in forms or len(forms) >= _MOST_TOPOLOGIES:
            return
        forms.add(form)
        text = json.dumps(document, separators=(",", ":"))
        path = make_folder(self._root / kind / self._pid) / f"{self._names[kind].free(file_stem(name), '')}.json"
        _save(path, text)
        if "onnx" in self._types:
            _save_onnx(path, operations)


def operation_table(model: str, operations: Iterable[Operation]) -> str:
    """Return the operation_tensors CSV: 21 columns separated by ``|``, a row per operation, also for inner ones."""
    rows = [_row(number, model, operation) for number, operation in enumerate(_nested(operations))]
    return "".join("|".join(cells) + "\n" for cells in (COLUMNS, *rows))


def profiling_table(operations: Iterable[Operation]) -> str:
    """Return the operation_statistic CSV: microseconds on the host, for all timed operations."""
    timed = (
        (operation.name, operation.op_type, operation.module, f"{operation.nanoseconds / 1000:.3f}")
        for operation in _nested(operations)
        if operation.nanoseconds is not None
    )
    rows = (escaped(dict(zip(PROFILING_COLUMNS, cells))).values() for cells in timed)
    return csv_lines([PROFILING_COLUMNS, *rows])


def _nested(operations: Iterable[Operation]) -> Iterator[Operation]:
    return (inner for operation in operations for inner in operation.walk())


def _row(number: int, model: str, operation: Operation) -> list[str]:
    param = "" if operation.param in (None, "") else json.dumps(operation.param, separators=(",", ":"))
    values = {
        "CaseNum": str(number),
        "CaseName": operation.module or operation.name,
        "OpName": operation.name,
        "OpParam": param,
        **_side("In", operation.inputs()),
        **_side("Out", operation.outputs()),
        "FromModel": model,
    }
    return [_cell(values.get(column, "")) if column != "OpParam" else param for column in COLUMNS]


def _side(side: str, values: Sequence[Value]) -> dict[str, str]:
    return {
        f"{side}Num": str(len(values)),
        f"{side}DType": ";".join(value.dtype for value in values),
        f"{side}Format": ";".join("nd" for _ in values),
        f"{side}Shape": ";".join(",".join(map(str, value.shape)) for value in values),
        f"{side}TensorFile": ";".join(value.file or "" for value in values),
    }


def _cell(text: str) -> str:
    """Return a cell without separators and line breaks."""
    return " ".join(text.replace("|", "/").split())


def _without_params(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form of a step: operators and their connections. Params differ from token to token."""
    nodes = [_without_params(node) for node in document.get("nodes", ())]
    return {**document, "param": None, "nodes": nodes}


def _save_onnx(path: Path, operations: Sequence[Operation]) -> None:
    from sgsdump.models.atb.topology import convert_topology

    tensors = {operation.name: _tensors(operation) for operation in _nested(operations)}
    try:
        convert_topology(path, path.with_suffix(".onnx"), csv=tensors)
    except OutputError:
        raise
    except SgsdumpError as error:
        raise OutputError(f"cannot convert {path} to ONNX: {error}") from None


def _tensors(operation: Operation) -> Tensors:
    sides = (operation.inputs(), operation.outputs())
    return Tensors(*(tuple((KNOWN.get(value.dtype), value.shape) for value in side) for side in sides))


def _append(folder: Path, name: str, text: str) -> None:
    """Write a table of a step; a second model in the same step appends its rows."""
    path = make_folder(folder) / name
    if path.is_file():
        text = path.read_text(encoding="utf-8") + "".join(text.splitlines(keepends=True)[1:])
    _save(path, text)


def _save(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
