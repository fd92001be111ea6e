"""Parser of overflow statuses: the only output in files ``Opdebug.Node_OpDebug.{task}.{stream}.{time}``.

New form, little-endian::

    uint32 magic 0x5A5A5A5A, version, valid, acc_type, rsv, data_len     acc_type: 0 AIC, 1 AIV, 2 AICPU, 3 SDMA
    uint64 …                                                            by acc_type, see ``_FIELDS``; in version 1, the
                                                                        status of AIC and AIV has four numbers

Old form, exactly 2048 bytes: six uint64 (model_id, stream_id, task_id, task_type, pc_start, para_base) at bytes 0, 128
and 256 for DHA, L2 and AI core. The status follows at bytes 512, 768 and 1024; for the AI core, after kernel_code and
block_idx.

65535 means no id. The returned dictionaries have the keys, order and numbers of the vendor's JSON.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from sgsdump.dumps.formats.ascend.file_names import STATUS_TYPE
from sgsdump.errors import FormatError
from sgsdump.tensors.tensor import Tensor

OLD_SIZE = 2048
NO_ID = 65535
_MAGIC = 0x5A5A5A5A
_HEAD = struct.Struct("<6I")
_UNITS = ("AIC", "AIV", "AICPU", "SDMA")
_TASK = "model_id stream_id task_id task_type context_id "
_CORE = _TASK + "thread_id pc_start para_base core_id block_id status"
_FIELDS = {
    "AIC": _CORE,
    "AIV": _CORE,
    "AICPU": _TASK + "cpu_id thread_id status",
    "SDMA": _TASK + "thread_id src_addr dst_addr channel_id status",
}
_ADDRESSES = {"pc_start", "para_base", "src_addr", "dst_addr", "kernel_code"}
_OLD_TASK = "model_id stream_id task_id task_type pc_start para_base"
_OLD = {
    "DHA Atomic Add": (0, 512, "status"),
    "L2 Atomic Add": (128, 768, "status"),
    "AI Core": (256, 1024, "kernel_code block_idx status"),
}


class StatusNote(str):
    """Note about an overflow status; ``tensor`` is the name of the status, so that code need not parse the text."""

    tensor: str

    @classmethod
    def of(cls, tensor: str, text: str) -> StatusNote:
        note = cls(f"{tensor}: {text}")
        note.tensor = tensor
        return note


def is_status(tensor: Tensor) -> bool:
    """Return whether a tensor is an overflow status, judged by its file name."""
    return tensor.info.op_type == STATUS_TYPE


def status_of(tensor: Tensor) -> dict[str, Any]:
    """Return the parsed status of a tensor. Raises FormatError for other bytes."""
    return parse(tensor.raw()[: OLD_SIZE + 1].tobytes(), f"tensor {tensor.info.name!r}")


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Parse a status of either form. Raises FormatError, prefixed with ``where``, for other bytes."""
    if data[:4] == _MAGIC.to_bytes(4, "little"):
        return _new(data, where)
    if len(data) == OLD_SIZE:
        return _old(data)
    raise FormatError(
        f"{where} is not an overflow status: it does not begin with 0x5a5a5a5a and has {len(data)} "
        "bytes instead of 2048"
    )


def summary(status: dict[str, Any]) -> str:
    """Return a line such as ``overflow on AIC: model 1, stream 2, task 17, status 549755813888``.

    If all status words are 0, the line begins with ``no overflow on AIC``.
    """
    units = _units(status)
    parts = (
        f"{unit}: model {data['model_id']}, stream {data['stream_id']}, task {data['task_id']}, status {data['status']}"
        for unit, data in units.items()
    )
    clean = not any(map(_is_set, units.values()))
    return ("no overflow on " if clean else "overflow on ") + "; ".join(parts)


class Culprit(NamedTuple):
    """Task that a unit's status names; ``slice`` is ``context.thread`` if the task ran in slices, else ""."""

    task: int
    stream: int
    slice: str


def culprits(status: dict[str, Any]) -> list[Culprit]:
    """Return the tasks with an overflow; none if no status word is set or the status names no task."""
    tasks = []
    for data in _units(status).values():
        ids = [data["task_id"], data["stream_id"], data.get("context_id", NO_ID), data.get("thread_id", NO_ID)]
        if _is_set(data) and NO_ID not in ids[:2]:
            tasks.append(Culprit(ids[0], ids[1], "" if NO_ID in ids[2:] else f"{ids[2]}.{ids[3]}"))
    return tasks


def _units(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "acc_list" in status:
        return {status["acc_list"]["acc_type"]: status["acc_list"]["data"]}
    return {unit: data for unit, data in status.items() if _is_set(data)} or status


def _is_set(data: dict[str, Any]) -> bool:
    """Return whether a unit's status (one number or four) is not zero."""
    status = data["status"]
    return any(status) if isinstance(status, list) else bool(status)


def _new(data: bytes, where: str) -> dict[str, Any]:
    if len(data) < _HEAD.size:
        raise FormatError(f"{where} is a damaged overflow status: it has only {len(data)} bytes")
    magic, version, valid, acc_type, rsv, data_len = _HEAD.unpack_from(data)
    if acc_type >= len(_UNITS):
        raise FormatError(f"{where} is an overflow status of the unknown hardware unit {acc_type}")
    unit = _UNITS[acc_type]
    fields = _FIELDS[unit].split()
    statuses = 4 if version == 1 and unit in ("AIC", "AIV") else 1
    numbers = _numbers(data, _HEAD.size, len(fields) - 1 + statuses, where)
    content: dict[str, Any] = _named(fields[:-1], numbers)
    content["status"] = list(numbers[-4:]) if statuses == 4 else numbers[-1]
    entry = {"valid": valid, "acc_type": unit, "rsv": rsv, "data_len": data_len, "data": content}
    return {"magic": hex(magic), "version": version, "acc_list": entry}


def _old(data: bytes) -> dict[str, Any]:
    by_unit = {}
    for unit, (task_at, status_at, status) in _OLD.items():
        fields = [*_OLD_TASK.split(), *status.split()]
        task = _numbers(data, task_at, len(_OLD_TASK.split()), unit)
        by_unit[unit] = _named(fields, task + _numbers(data, status_at, len(status.split()), unit))
    return by_unit


def _numbers(data: bytes, at: int, count: int, where: str) -> tuple[int, ...]:
    if at + 8 * count > len(data):
        raise FormatError(f"{where} is a damaged overflow status: it has only {len(data)} of {at + 8 * count} bytes")
    return struct.unpack_from(f"<{count}Q", data, at)


def _named(fields: list[str], numbers: tuple[int, ...]) -> dict[str, Any]:
    return {field: hex(number) if field in _ADDRESSES else number for field, number in zip(fields, numbers)}
