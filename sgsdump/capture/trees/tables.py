"""The tables of one step: what each operation reads and writes, and the time it took on the host."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence

from sgsdump.capture.trees.operations import Operation, Value
from sgsdump.files.escaping import escaped
from sgsdump.models.atb.operation_csv import COLUMNS

PROFILING_COLUMNS = ("OpName", "OpType", "Module", "HostTimeUs")


def operation_table(model: str, operations: Iterable[Operation]) -> str:
    """operation_tensors CSV, 21 columns between ``|``: a row for each operation, those inside another too."""
    rows = [_row(number, model, operation) for number, operation in enumerate(_all(operations))]
    return "".join("|".join(cells) + "\n" for cells in (COLUMNS, *rows))


def profiling_table(operations: Iterable[Operation]) -> str:
    """operation_statistic CSV: microseconds on the host, of the operations whose time was taken."""
    file = io.StringIO()
    table = csv.DictWriter(file, PROFILING_COLUMNS, lineterminator="\n")
    table.writeheader()
    for operation in _all(operations):
        if operation.nanoseconds is not None:
            cells = (operation.name, operation.op_type, operation.module, f"{operation.nanoseconds / 1000:.3f}")
            table.writerow(escaped(dict(zip(PROFILING_COLUMNS, cells))))
    return file.getvalue()


def _all(operations: Iterable[Operation]) -> Iterator[Operation]:
    for operation in operations:
        yield operation
        yield from _all(operation.inside.values())


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
    return [_plain(values.get(column, "")) if column != "OpParam" else param for column in COLUMNS]


def _side(side: str, values: Sequence[Value]) -> dict[str, str]:
    return {
        f"{side}Num": str(len(values)),
        f"{side}DType": ";".join(value.dtype for value in values),
        f"{side}Format": ";".join("nd" for _ in values),
        f"{side}Shape": ";".join(",".join(map(str, value.shape)) for value in values),
        f"{side}TensorFile": ";".join(value.file or "" for value in values),
    }


def _plain(text: str) -> str:
    """A cell without what would end it."""
    return " ".join(text.replace("|", "/").split())
