"""The vendor's checks of a dump section that is JSON: types, then values, then what must go together.

Each function raises ``Refused`` for the first thing that is wrong. Source: docs/formats/ascend.md#dump-configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sgsdump.capture.configs.acl_path import trouble_with
from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted

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


class Refused(ConfigError):
    """The vendor's verdict: its error code, the key (``dump_list[0].layer``), the value, the reason."""

    def __init__(self, code: str, item: str | None, value: str | None, reason: str) -> None:
        where = "" if item is None else f"{item}: " if value is None else f"{item} is {quoted(value)}: "
        super().__init__(f"{where}{reason} ({code})")
        self.code, self.item, self.value, self.reason = code, item, value, reason


def check_types(section: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if name in section and not isinstance(section[name], str):
            raise mistyped(name, "text, in quotes")
    if "dump_stats" in section:
        _check_texts("dump_stats", section["dump_stats"])
    entries = section.get("dump_list", [])
    if not isinstance(entries, list):
        raise mistyped("dump_list", "a list, [ ]")
    for number, entry in enumerate(entries):
        where = f"dump_list[{number}]"
        if not isinstance(entry, Mapping):
            raise mistyped(where, "an object, { }")
        if not isinstance(entry.get("model_name", ""), str):
            raise mistyped(f"{where}.model_name", "text, in quotes")
        for name in _ITEM_LISTS:
            if not isinstance(entry.get(name, []), list):
                raise mistyped(f"{where}.{name}", "a list, [ ]")
        for name in ("layer", "watcher_nodes"):
            _check_texts(f"{where}.{name}", entry.get(name, []))
        for name in (*BLACKLISTS, "opname_range"):
            for inner, item in enumerate(entry.get(name, [])):
                _check_item(f"{where}.{name}[{inner}]", item)


def _check_texts(where: str, value: Any) -> None:
    if not isinstance(value, list):
        raise mistyped(where, "a list, [ ]")
    for number, text in enumerate(value):
        if not isinstance(text, str):
            raise mistyped(f"{where}[{number}]", "text, in quotes")


def _check_item(where: str, item: Any) -> None:
    if not isinstance(item, Mapping):
        raise mistyped(where, "an object, { }")
    for name in ("name", "begin", "end"):
        if not isinstance(item.get(name, ""), str):
            raise mistyped(f"{where}.{name}", "text, in quotes")
    _check_texts(f"{where}.pos", item.get("pos", []))


def check_values(section: Mapping[str, Any]) -> None:
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


def mistyped(item: str, wanted: str) -> Refused:
    return Refused("EP0001", item, None, f"The configuration item value must be {wanted}")


def check_path(path: str | None) -> None:
    if not path:
        raise Refused("EP0001", "dump_path", None, EMPTY if path == "" else "The configuration item is missing")
    trouble = trouble_with(path)
    if trouble:
        raise Refused("EP0003", "dump_path", path, trouble)


def _conflict(reason: str) -> Refused:
    return Refused("EP0005", None, None, reason)


def _when(item: str, value: str, other: str) -> str:
    return f"When configuration item {item} is set to {value}, configuration item {other}"


def check_together(section: Mapping[str, Any]) -> None:
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


def check_entry(where: str, entry: Mapping[str, Any], watching: bool, on: bool, level: str | None) -> None:
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
