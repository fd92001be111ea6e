"""What is dumped and where to: from the options that were set, and the JSON file that they name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgsdump.capture.configs import acl_json
from sgsdump.capture.configs.acl_json import Entry
from sgsdump.capture.configs.acl_use import control_of
from sgsdump.capture.control import DumpControl
from sgsdump.capture.steps import read_steps
from sgsdump.dumps.formats.ascend.ascend_stats import DEFAULT
from sgsdump.errors import ConfigError
from sgsdump.torchair.blacklist import idle_items
from sgsdump.torchair.options import DumpOptions


@dataclass(frozen=True)
class Plan:
    """statistics  those of a CSV, by the names of ``dump_stats``.
    ranges      graphs by name, each with the first and the last operator of a range that is dumped.
    entries     of the file's dump_list, whose blacklists say what is left out.
    """

    control: DumpControl
    path: Path
    statistics: tuple[str, ...] = DEFAULT
    ranges: tuple[tuple[str, str, str], ...] = ()
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()


def plan_of(options: DumpOptions) -> Plan:
    """Raises ConfigError for a file or folder that is not there or does not go, and for options at odds."""
    given = options.given
    if "dump_config_path" not in given:
        control = replace(DumpControl(enabled=options.enable_dump, mode=options.dump_mode), **_changes(given))
        return Plan(control, _checked_folder(options.dump_path, "dump_config.dump_path"))
    file = Path(given["dump_config_path"])
    acl = acl_json.read(file)
    control, notes = control_of(acl)
    if "dump_mode" in given and control.scene == "watcher" and given["dump_mode"] != "output":
        raise ConfigError(
            f"dump_config.dump_mode {given['dump_mode']}: {file} is a watcher's, which dumps outputs only"
        )
    if control.scene == "overflow" and any(one.model_name or one.layer for one in acl.entries):
        raise ConfigError(f"{file}: dump_debug on looks at every operator and takes no models beside; leave one out")
    enabled = options.enable_dump and (control.enabled or "dump_layer" in given)
    whole = tuple((one.model_name, one.layer) for one in acl.entries if one.layer or not one.op_name_ranges)
    control = replace(control, enabled=enabled, models=whole if control.models else ())
    control = replace(control, **_changes(given))
    where = Path(given["dump_path"]) if "dump_path" in given else Path(acl.path)
    ranges = () if acl.single_operators or "dump_layer" in given else tuple(_ranges(acl.entries))
    plan = Plan(control, _checked_folder(where, "dump_path"), acl.statistics or DEFAULT, ranges, acl.entries, notes)
    return _without_choices(plan) if control.scene else replace(plan, notes=(*notes, *idle_items(plan.entries)))


def _ranges(entries: Iterable[Entry]) -> Iterator[tuple[str, str, str]]:
    for entry in entries:
        for first, last in entry.op_name_ranges:
            yield entry.model_name, first, last


def _without_choices(plan: Plan) -> Plan:
    """Overflow and the watcher choose by themselves."""
    named = any(one.op_name_ranges or one.op_type_blacklist or one.op_name_blacklist for one in plan.entries)
    note = f"blacklists and opname_range have no effect on the scene {plan.control.scene}"
    return replace(plan, ranges=(), entries=(), notes=(*plan.notes, note) if named else plan.notes)


def _changes(given: Any) -> dict[str, Any]:
    """What the options that were set say, as fields of a DumpControl."""
    changes: dict[str, Any] = {}
    if "dump_mode" in given:
        changes["mode"] = given["dump_mode"]
    if "dump_step" in given:
        changes["steps"] = read_steps(given["dump_step"].rstrip("|"))
    if "dump_data" in given:
        changes["content"] = given["dump_data"]
    if "dump_layer" in given:
        changes |= {"names": tuple(given["dump_layer"].replace('"', " ").split()), "models": ()}
    return changes


def _checked_folder(path: str | Path, what: str) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"{what} {str(path)!r} is no folder; make it first")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{what} {str(path)!r} cannot be read and written; change its permissions or name another")
    return folder.absolute()
