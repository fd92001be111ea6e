"""msit's tree: what stands beside ``tensors/``, made of the hooks' index when the program has ended.

::

    msit_dump_{time}/
      tensors/{device}_{pid}/{step}/{id}_{name}/…          written by the hooks themselves
      model/{pid}/{model}.json                             and .onnx with --type onnx
      layer/{pid}/{operation}.json                         and .onnx
      operation_io_tensors/{pid}/operation_tensors_{step}.csv
      cpu_profiling/{pid}/operation_statistic_{step}.csv
      processes/{pid}/index.jsonl, control.json            the hooks' own
      index.json                                           written last: what is there, and whether it is complete

Where a model's steps differ in what runs (prefill and decoding), each form gets a JSON: the second
is ``{model}~2.json``. Params are those of the first step of a form.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sgsdump.errors import OutputError, SgsdumpError
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.files.escaping import escaped
from sgsdump.files.names import Taken
from sgsdump.models.atb.operation_csv import COLUMNS, Tensors
from sgsdump.programs.operations import Operation, Value, layer_document, model_document, operations_of, readers_of
from sgsdump.programs.process_index import Process, Step, steps_of
from sgsdump.tensors.dtypes import KNOWN

PROFILING_COLUMNS = ("OpName", "OpType", "Module", "HostTimeUs")
INDEX = "index.json"
_MOST_TOPOLOGIES = 20
_FROM_STEPS = {"model", "layer", "onnx", "op", "cpu_profiling"}


def new_tree(output: Path) -> Path:
    """A new folder ``msit_dump_{time}`` in ``output``, which is made if need be. Raises OutputError."""
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
            raise OutputError(f"cannot write into {output}: {error.strerror or error}; name another with -o") from None
    raise OutputError(f"cannot write into {output}: it has a thousand dumps of this second")


def write_beside(root: Path, processes: Sequence[Process], types: Iterable[str], command: Sequence[str] = ()) -> None:
    """Everything of ``types`` but the tensors, then the index, which tells the ``command`` too. Raises OutputError."""
    kinds = set(types)
    for process in processes if kinds & _FROM_STEPS else ():
        topologies = _Topologies(root, process, kinds)
        for step in steps_of(process):
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
    """``index.json``: the contents of the tree, and whether they are complete."""
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
    """The JSON files of one process: a model's, and its layers', once for each form that its steps take."""

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
        path = make_folder(self._root / kind / self._pid) / f"{self._names[kind].free(name, '')}.json"
        _save(path, text)
        if "onnx" in self._types:
            _save_onnx(path, operations)


def operation_table(model: str, operations: Iterable[Operation]) -> str:
    """operation_tensors CSV, 21 columns between ``|``: a row for each operation, those inside another too."""
    rows = [_row(number, model, operation) for number, operation in enumerate(_nested(operations))]
    return "".join("|".join(cells) + "\n" for cells in (COLUMNS, *rows))


def profiling_table(operations: Iterable[Operation]) -> str:
    """operation_statistic CSV: microseconds on the host, of the operations whose time was taken."""
    file = io.StringIO()
    table = csv.DictWriter(file, PROFILING_COLUMNS, lineterminator="\n")
    table.writeheader()
    for operation in _nested(operations):
        if operation.nanoseconds is not None:
            cells = (operation.name, operation.op_type, operation.module, f"{operation.nanoseconds / 1000:.3f}")
            table.writerow(escaped(dict(zip(PROFILING_COLUMNS, cells))))
    return file.getvalue()


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
    """A cell without what would end it."""
    return " ".join(text.replace("|", "/").split())


def _without_params(document: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a form: which operators run, and which feeds which. Params differ from token to token."""
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
        raise OutputError(f"cannot make an ONNX of {path}: {error}") from None


def _tensors(operation: Operation) -> Tensors:
    sides = (operation.inputs(), operation.outputs())
    return Tensors(*(tuple((KNOWN.get(value.dtype), value.shape) for value in side) for side in sides))


def _append(folder: Path, name: str, text: str) -> None:
    """A table of a step; of a second model in the same step the rows go below the first one's."""
    path = make_folder(folder) / name
    if path.is_file():
        text = path.read_text(encoding="utf-8") + "".join(text.splitlines(keepends=True)[1:])
    _save(path, text)


def _save(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
