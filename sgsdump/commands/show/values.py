"""``sgsdump show DUMP NAME``: the values of one tensor, or those farthest from another dump's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.dump import Dump, Record


def show_values(dump: Dump, args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal, shown
    from sgsdump.reports.dump import tensor_values
    from sgsdump.tensors.slicing import viewed

    record, note = _find(dump, args.name)
    of_bytes = args.stored or args.part or args.operations or args.output or args.csv
    status = None if of_bytes else _status(record)
    if status is not None:
        text = json.dumps(status, indent=4) + "\n"
        if args.json:
            replace_text(args.json, text)
        print(for_terminal(f"{shown(record.name)}: status of an overflow; --stored shows its bytes{note}"))
        for line in dump.notes:
            if line.startswith(f"{record.name}: "):
                print(for_terminal(f"note: {line}"))
        print(text, end="")
        return 0
    array, how = _array(record, args.stored)
    part = viewed(array, args.part or args.operations or "")
    if args.csv:
        replace_text(args.csv, tensor_values.csv_table(part))
    if args.json:
        replace_text(args.json, tensor_values.json_document(part, record.name))
    if args.output:
        _write_array(args.output, part)
    print(for_terminal(f"{shown(record.name)}: {how}{note}"))
    print(for_terminal(tensor_values.text(part, args.all)), end="")
    return 0


def show_worst(args: argparse.Namespace) -> int:
    """The values of one tensor that differ most from another dump's."""
    from sgsdump.commands.options import opened
    from sgsdump.comparison.worst_values import worst_values
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.reports.dump import worst_values as report

    if args.against is None or args.name is None:
        raise ConfigError(
            "--worst and --against belong together, and to one tensor: show DUMP NAME --against BENCHMARK"
        )
    if args.part or args.operations or args.stored or args.all or args.output:
        raise ConfigError("--against shows index and values; leave out OPERATIONS, --stored, --all and --output")
    count = 20 if args.worst is None else args.worst
    sample, benchmark = opened(args, args.dump, args.against)
    worst = worst_values(sample, benchmark, args.name, count)
    if args.csv:
        replace_text(args.csv, report.csv_table(worst))
    if args.json:
        replace_text(args.json, report.json_document(worst))
    print(for_terminal(report.text(worst)), end="")
    return 0


def _status(record: Record) -> dict[str, Any] | None:
    """What an overflow status says, as the vendor's own JSON has it; None for any other tensor, or a damaged one."""
    from sgsdump.dumps.formats.ascend import overflow
    from sgsdump.errors import SgsdumpError

    if not overflow.is_status(record.tensor):
        return None
    try:
        return overflow.status_of(record.tensor)
    except SgsdumpError:
        return None


def _find(dump: Dump, name: str) -> tuple[Record, str]:
    """The record of a name, an output before all others, and a note on the choice. A Caffe blob that no tensor is
    called is its last stage."""
    from sgsdump.errors import ConfigError
    from sgsdump.registry import hint
    from sgsdump.tensors.stages import last_stage

    matches = [record for record in dump.records if record.name == name]
    if not matches and name.startswith("#") and name[1:].isdecimal() and int(name[1:10]) < len(dump.records):
        return dump.records[int(name[1:10])], ""
    if not matches:
        names = [record.name for record in dump.records]
        stage = last_stage(name, names)
        if stage is not None:
            record, note = _find(dump, stage)
            return record, f", the last stage of {name}{note}"
        near = f"; for patterns there is --select {name!r}" if set(name) & set("*?[") else hint(name, names)
        raise ConfigError(f"no tensor {name!r} in {dump.path}{near}")
    matches.sort(key=lambda record: (record.io != "out", record.constant))
    outputs = [record for record in matches if record.io == matches[0].io]
    if len(outputs) == 1:
        return matches[0], ""
    numbers = [f"#{number}" for number, record in enumerate(dump.records) if record.name == name]
    return matches[0], f"; {len(numbers)} tensors have this name: {', '.join(numbers[:8])}"


def _array(record: Record, stored: bool) -> tuple[np.ndarray, str]:
    """The values to show, and what they are."""
    from sgsdump.errors import ValuesError
    from sgsdump.tensors.device import conversion, is_device
    from sgsdump.tensors.dtypes import is_complex, is_number, name_of

    tensor, layout = record.tensor, record.tensor.info.layout
    if not stored and conversion(tensor.info):
        layout = conversion(tensor.info)
        tensor = tensor.logical()
    elif is_device(layout):
        layout = f"{layout} as it lies"
    array = tensor.stored()
    what = f"stored {name_of(array.dtype)}"
    if not stored and is_number(array.dtype) and not is_complex(array.dtype) and tensor.info.quant is not None:
        try:
            array = tensor.real()
            what = f"real values of {what}"
        except ValuesError:
            what += ", whose true scale the dump does not tell"
    return array, ", ".join(filter(None, [what, str(list(array.shape)), layout]))


def _write_array(path: Path, array: np.ndarray) -> None:
    """As .npy; to a .bin the elements alone, in C order and little-endian."""
    from sgsdump.dumps.formats.shared.npy_file import write
    from sgsdump.files.atomic_write import replacing

    with replacing(path) as file:
        if path.suffix == ".bin":
            own = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
            file.write(own.tobytes())
        else:
            write(file, array)
