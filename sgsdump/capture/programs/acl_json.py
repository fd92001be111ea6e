"""Reader of the "dump" section of acl.json, which TorchAir's dump_config_path accepts too, with the vendor's checks.

Checks come in the vendor's order: JSON syntax, types of all values, allowed values, combinations. The first error
counts. Unknown keys are ignored; of a duplicate key the last one counts. Error codes are the vendor's: EP0001 missing,
empty or wrong type, EP0002 unknown value, EP0003 invalid value, EP0004 not JSON, EP0005 invalid combination.
``control_of`` translates a valid file for a program on any device. Source:
docs/formats/ascend.md#dump-configuration.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.control import EVERY, DumpControl, Steps, whole_number, with_fields
from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted

MOST_PATH_LETTERS = 512
SCENES = {
    "lite_exception": "aic_err_brief_dump",
    "aic_err_brief_dump": "aic_err_brief_dump",
    "aic_err_norm_dump": "aic_err_norm_dump",
    "aic_err_detail_dump": "aic_err_detail_dump",
    "watcher": "tensor",
}
VALUES: Mapping[str, Sequence[str]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_op_switch": ("on", "off"),
    "dump_level": ("op", "kernel", "all"),
    "dump_data": ("tensor", "stats"),
    "dump_debug": ("on", "off"),
    "dump_scene": tuple(SCENES),
}
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
KERNEL_DATA = ("all", "printf", "tensor", "assert", "timestamp")
BLACKLISTS = ("optype_blacklist", "opname_blacklist")
MOST_BLACKLISTED = 100
EMPTY = "The configuration item value is empty"
_TEXTS = ("dump_path", *VALUES, "dump_step", "dump_kernel_data")
_ITEM_LISTS = ("layer", "watcher_nodes", *BLACKLISTS, "opname_range")
MOST_STEPS = 100
_MOST_BYTES = 16 << 20
EXCEPTION = (
    "dump_scene {} has no effect: without the card, no exceptions of the card occur. With the card, torch_npu enables "
    "this dump itself"
)


class Refused(ConfigError):
    """Verdict of the vendor's check: error code, key (``dump_list[0].layer``), value and reason."""

    def __init__(self, code: str, item: str | None, value: str | None, reason: str) -> None:
        where = "" if item is None else f"{item}: " if value is None else f"{item} is {quoted(value)}: "
        super().__init__(f"{where}{reason} ({code})")
        self.code, self.item, self.value, self.reason = code, item, value, reason


@dataclass(frozen=True)
class Entry:
    """One object of dump_list; blacklists are pairs of name and positions (``input0``), ranges of first and last."""

    model_name: str = ""
    layer: tuple[str, ...] = ()
    watcher_nodes: tuple[str, ...] = ()
    op_type_blacklist: tuple[tuple[str, tuple[str, ...]], ...] = ()
    op_name_blacklist: tuple[tuple[str, tuple[str, ...]], ...] = ()
    op_name_ranges: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AclDump:
    """Settings of a valid file, with the vendor's defaults for missing keys (dump_mode: output)."""

    path: str = ""
    mode: str = "output"
    single_operators: bool = False
    level: str = "all"
    data: str = "tensor"
    statistics: tuple[str, ...] = ()
    debug: bool = False
    scene: str = ""
    steps: Steps = EVERY
    kernel_data: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def need_dump(self) -> bool:
        """Whether anything is dumped."""
        return bool(self.entries or self.single_operators or self.debug or self.scene)

    @property
    def dump_type(self) -> str | None:
        """tensor, overflow, or an exception scene's name; None if nothing is dumped."""
        if not self.need_dump:
            return None
        return "overflow" if self.debug else SCENES.get(self.scene, "tensor")


def read(path: Path) -> AclDump:
    """Read the dump section of a file.

    Raises Refused, prefixed with the file's name, and ConfigError for a missing file.
    """
    text = decode(read_bytes(path, _MOST_BYTES), path)
    try:
        return parse(text)
    except Refused as error:
        error.args = (f"{path}: {error}",)
        raise


def parse(text: str) -> AclDump:
    """Read the dump section of a JSON text; relative paths start at the current folder. Raises Refused."""
    try:
        document = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise Refused("EP0004", None, None, f"it is not valid JSON: {str(error)[:100]}") from None
    if not isinstance(document, Mapping):
        raise Refused("EP0004", None, None, "it is not a JSON object, { }")
    section = document.get("dump", {})
    if not isinstance(section, Mapping):
        raise _mistyped("dump", "an object, { }")
    if not section:
        return AclDump()
    _check_types(section)
    _check_values(section)
    return _meaning(section)


def _meaning(section: Mapping[str, Any]) -> AclDump:
    scene, watching = section.get("dump_scene", ""), section.get("dump_scene") == "watcher"
    if watching or not scene or "dump_path" in section:
        _check_path(section.get("dump_path"))
    steps = _steps(section.get("dump_step", ""))
    _check_together(section)
    on = section.get("dump_op_switch") == "on"
    entries = section.get("dump_list", [])
    for number, entry in enumerate(entries):
        _check_entry(f"dump_list[{number}]", entry, watching, on, section.get("dump_level"))
    return AclDump(
        section.get("dump_path", ""),
        section.get("dump_mode", "output"),
        on,
        section.get("dump_level", "all"),
        section.get("dump_data", "tensor"),
        tuple(section.get("dump_stats", ())),
        section.get("dump_debug") == "on",
        scene,
        steps,
        tuple(filter(None, section.get("dump_kernel_data", "").split(","))),
        tuple(map(_entry, entries)),
    )


def _steps(text: str) -> Steps:
    """Read ``0|3-5``; an empty text means every step. Numbers may have any size."""
    ranges = []
    parts = text.split("|") if text else []
    if len(parts) > MOST_STEPS:
        raise Refused(
            "EP0003", "dump_step", text, f"The value has {len(parts)} items, at most {MOST_STEPS} are allowed"
        )
    for number, part in enumerate(parts):
        ends = part.split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            reason = "The value contains non-digit characters,  expected format: 1 or 5-10"
            raise Refused("EP0003", f"dump_step[{number}]", part, reason)
        first, last = whole_number(ends[0]), whole_number(ends[-1])
        if first > last:
            reason = "The value has invalid format, start step must not exceed end step, expected format: 5-10"
            raise Refused("EP0003", f"dump_step[{number}]", part, reason)
        ranges.append((first, last))
    return Steps(tuple(ranges))


def _entry(entry: Mapping[str, Any]) -> Entry:
    def blacklist(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple((item.get("name", ""), tuple(item.get("pos", ()))) for item in entry.get(name, ()))

    return Entry(
        entry.get("model_name", ""),
        tuple(entry.get("layer", ())),
        tuple(entry.get("watcher_nodes", ())),
        blacklist("optype_blacklist"),
        blacklist("opname_blacklist"),
        tuple((item["begin"], item["end"]) for item in entry.get("opname_range", ())),
    )


def control_of(acl: AclDump) -> tuple[DumpControl, tuple[str, ...]]:
    """Return the control, and a sentence for each accepted setting without effect.

    An entry without model_name applies to every model; an entry without layer selects all operators.
    """
    control = DumpControl(
        enabled=acl.need_dump,
        mode=acl.mode,  # type: ignore[arg-type]  # checked
        steps=acl.steps,
        content="stats" if acl.data == "stats" else "tensor",
    )
    if acl.scene == "watcher":
        control = with_fields(
            control,
            scene="watcher",
            mode="output",
            names=_unique(name for entry in acl.entries for name in entry.layer),
            watched=_unique(name for entry in acl.entries for name in entry.watcher_nodes),
        )
    elif acl.debug:
        control = replace(control, scene="overflow", mode="all")
    elif acl.scene:
        control = replace(control, enabled=False)
    elif not acl.single_operators:
        control = with_fields(control, models=tuple((entry.model_name, entry.layer) for entry in acl.entries))
    return control, tuple(_without_effect(acl))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _without_effect(acl: AclDump) -> list[str]:
    notes = []
    if acl.scene and acl.scene != "watcher":
        notes.append(EXCEPTION.format(acl.scene))
    if acl.level == "kernel":
        notes.append("dump_level kernel has no effect: without the card, operators run no kernels")
    if acl.kernel_data:
        notes.append("dump_kernel_data has no effect: without the card, no kernels print data")
    return notes


def _check_types(section: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if name in section and not isinstance(section[name], str):
            raise _mistyped(name, "text, in quotes")
    if "dump_stats" in section:
        _check_texts("dump_stats", section["dump_stats"])
    entries = section.get("dump_list", [])
    if not isinstance(entries, list):
        raise _mistyped("dump_list", "a list, [ ]")
    for number, entry in enumerate(entries):
        where = f"dump_list[{number}]"
        if not isinstance(entry, Mapping):
            raise _mistyped(where, "an object, { }")
        if not isinstance(entry.get("model_name", ""), str):
            raise _mistyped(f"{where}.model_name", "text, in quotes")
        for name in _ITEM_LISTS:
            if not isinstance(entry.get(name, []), list):
                raise _mistyped(f"{where}.{name}", "a list, [ ]")
        for name in ("layer", "watcher_nodes"):
            _check_texts(f"{where}.{name}", entry.get(name, []))
        for name in (*BLACKLISTS, "opname_range"):
            for inner, item in enumerate(entry.get(name, [])):
                _check_item(f"{where}.{name}[{inner}]", item)


def _trouble_with(path: str) -> str | None:
    """Return the fault of a dump folder, or None.

    The folder must exist and be writable, or be ``IP:PATH`` of another machine. A relative path starts at the current
    folder.
    """
    address, colon, _ = path.partition(":")
    if colon and _is_address(address):
        return None
    if len(path) > MOST_PATH_LETTERS:
        return f"The path has {len(path)} characters; at most {MOST_PATH_LETTERS} are allowed"
    if not Path(path).exists():
        return "The path does not exist"
    if not Path(path).is_dir():
        return "The path is not a directory"
    if not os.access(path, os.R_OK | os.W_OK):
        return "The path is not readable and writable"
    return None


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(text))
    except ValueError:
        return False


def _check_texts(where: str, value: Any) -> None:
    if not isinstance(value, list):
        raise _mistyped(where, "a list, [ ]")
    for number, text in enumerate(value):
        if not isinstance(text, str):
            raise _mistyped(f"{where}[{number}]", "text, in quotes")


def _check_item(where: str, item: Any) -> None:
    if not isinstance(item, Mapping):
        raise _mistyped(where, "an object, { }")
    for name in ("name", "begin", "end"):
        if not isinstance(item.get(name, ""), str):
            raise _mistyped(f"{where}.{name}", "text, in quotes")
    _check_texts(f"{where}.pos", item.get("pos", []))


def _check_values(section: Mapping[str, Any]) -> None:
    for name, values in VALUES.items():
        if name in section:
            _check_among(name, section[name], values)
    for name in section.get("dump_stats", ()):
        _check_among("dump_stats", name, STATISTICS)
    for name in filter(None, section.get("dump_kernel_data", "").split(",")):
        _check_among("dump_kernel_data", name, KERNEL_DATA)


def _check_among(item: str, value: str, values: Sequence[str]) -> None:
    if value not in values:
        raise Refused("EP0002", item, value, f"it must be {', '.join(values[:-1])} or {values[-1]}")


def _mistyped(item: str, expected: str) -> Refused:
    return Refused("EP0001", item, None, f"The configuration item value must be {expected}")


def _check_path(path: str | None) -> None:
    if not path:
        raise Refused("EP0001", "dump_path", None, EMPTY if path == "" else "The configuration item is missing")
    trouble = _trouble_with(path)
    if trouble:
        raise Refused("EP0003", "dump_path", path, trouble)


def _conflict(reason: str) -> Refused:
    return Refused("EP0005", None, None, reason)


def _when(item: str, value: str, other: str) -> str:
    return f"When configuration item {item} is set to {value}, configuration item {other}"


def _check_together(section: Mapping[str, Any]) -> None:
    scene, mode = section.get("dump_scene", ""), section.get("dump_mode")
    for name in ("dump_debug", "dump_op_switch"):
        if scene and section.get(name) == "on":
            raise _conflict(f"{_when('dump_scene', scene, name)} cannot be set to on")
    if scene == "watcher" and mode in ("input", "all"):
        raise _conflict(f"{_when('dump_scene', scene, 'dump_mode')} cannot be set to {mode}")
    if section.get("dump_debug") == "on" and section.get("dump_op_switch") == "on":
        raise _conflict(f"{_when('dump_debug', 'on', 'dump_op_switch')} cannot be set to on")
    if "dump_stats" in section:
        if not section["dump_stats"]:
            raise Refused("EP0001", "dump_stats", None, EMPTY)
        if section.get("dump_data", "tensor") == "tensor":
            raise _conflict(f"{_when('dump_data', 'tensor', 'dump_stats')} cannot be configured")


def _check_entry(where: str, entry: Mapping[str, Any], watching: bool, on: bool, level: str | None) -> None:
    if watching:
        if "model_name" in entry:
            raise _conflict(f"{_when('dump_scene', 'watcher', f'{where}.model_name')} cannot be configured")
        if not entry.get("watcher_nodes"):
            raise Refused("EP0001", f"{where}.watcher_nodes", None, EMPTY)
    elif "watcher_nodes" in entry:
        reason = f"configuration item {where}.watcher_nodes cannot be configured"
        raise _conflict(f"When configuration item dump_scene is not set to watcher, {reason}")
    if not watching and not on:
        for name in ("model_name", "layer"):
            if name in entry and not entry[name]:
                raise Refused("EP0001", f"{where}.{name}", None, EMPTY)
    for name in (*BLACKLISTS, "opname_range"):
        if name in entry and level != "op":
            reason = f"configuration item {where}.{name} cannot be configured"
            raise _conflict(f"When configuration item dump_level is not set to op, {reason}")
    for name in BLACKLISTS:
        if len(entry.get(name, ())) > MOST_BLACKLISTED:
            reason = f"The list has {len(entry[name])} items, at most {MOST_BLACKLISTED} are allowed"
            raise Refused("EP0003", f"{where}.{name}", None, reason)
    if "opname_range" in entry and not entry.get("model_name"):
        raise Refused("EP0001", f"{where}.model_name", None, EMPTY)
    for number, item in enumerate(entry.get("opname_range", ())):
        begin, end = item.get("begin", ""), item.get("end", "")
        if not (begin and end):
            reason = "The item is incomplete, begin and end must be configured together and non-empty"
            raise Refused("EP0003", f"{where}.opname_range[{number}]", f"begin={begin}, end={end}", reason)
