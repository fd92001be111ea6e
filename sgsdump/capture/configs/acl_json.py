"""The "dump" section of acl.json, which TorchAir's dump_config_path takes too: checked as the vendor checks it.

First that it is JSON, then every value's type, then that values are among those that there are, then what must go
together; the first error counts. Keys that are not known are passed over, of one that stands twice the last is taken.
The codes are the vendor's: EP0001 missing, empty or of the wrong type, EP0002 none of the values there are, EP0003 a
bad value, EP0004 not JSON, EP0005 what does not go together. Source: docs/formats/ascend.md#dump-configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.capture.configs.acl_checks import (
    SCENES,
    Refused,
    check_entry,
    check_path,
    check_together,
    check_types,
    check_values,
    mistyped,
)
from sgsdump.capture.steps import EVERY, Steps, whole_number
from sgsdump.files.bounded_read import decode, read_bytes

MOST_STEPS = 100
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Entry:
    """One object of dump_list. Blacklists are pairs of name and positions (``input0``), ranges of first and last."""

    model_name: str = ""
    layer: tuple[str, ...] = ()
    watcher_nodes: tuple[str, ...] = ()
    op_type_blacklist: tuple[tuple[str, tuple[str, ...]], ...] = ()
    op_name_blacklist: tuple[tuple[str, tuple[str, ...]], ...] = ()
    op_name_ranges: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AclDump:
    """A valid file. Where it gives nothing the vendor's default stands: dump_mode is output here."""

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
        """Whether anything is dumped at all."""
        return bool(self.entries or self.single_operators or self.debug or self.scene)

    @property
    def dump_type(self) -> str | None:
        """tensor, overflow, or an exception scene's name; None where nothing is dumped."""
        if not self.need_dump:
            return None
        return "overflow" if self.debug else SCENES.get(self.scene, "tensor")


def read(path: Path) -> AclDump:
    """A file's dump section. Raises Refused, with the file's name in front, and ConfigError for no such file."""
    text = decode(read_bytes(path, _MOST_BYTES), path)
    try:
        return parse(text)
    except Refused as error:
        error.args = (f"{path}: {error}",)
        raise


def parse(text: str) -> AclDump:
    """The dump section of a JSON text, paths being looked at from the current folder. Raises Refused."""
    try:
        document = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise Refused("EP0004", None, None, f"it is not valid JSON: {str(error)[:100]}") from None
    if not isinstance(document, Mapping):
        raise Refused("EP0004", None, None, "it is no JSON object, { }")
    section = document.get("dump", {})
    if not isinstance(section, Mapping):
        raise mistyped("dump", "an object, { }")
    if not section:
        return AclDump()
    check_types(section)
    check_values(section)
    return _meaning(section)


def _meaning(section: Mapping[str, Any]) -> AclDump:
    scene, watching = section.get("dump_scene", ""), section.get("dump_scene") == "watcher"
    if watching or not scene or "dump_path" in section:
        check_path(section.get("dump_path"))
    steps = _steps(section.get("dump_step", ""))
    check_together(section)
    on = section.get("dump_op_switch") == "on"
    entries = section.get("dump_list", [])
    for number, entry in enumerate(entries):
        check_entry(f"dump_list[{number}]", entry, watching, on, section.get("dump_level"))
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
    """``0|3-5``; no text stands for every step. A number may be as large as one likes."""
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
