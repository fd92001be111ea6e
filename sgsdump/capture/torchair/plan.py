"""The plan of a dump, from options and the JSON file that they name, which may change while the program runs.

``plan_of`` reads both once; ``LivePlan`` reads the file again if it changes.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgsdump.capture.programs import acl_json
from sgsdump.capture.programs.acl_json import Entry, control_of
from sgsdump.capture.programs.control import DumpControl, read_steps, with_fields
from sgsdump.capture.torchair.operators import Names, idle_items, logger
from sgsdump.capture.torchair.options import DumpOptions
from sgsdump.capture.torchair.tree import Tree
from sgsdump.dumps.formats.ascend.ascend_stats import DEFAULT
from sgsdump.errors import ConfigError, SgsdumpError


@dataclass(frozen=True)
class Plan:
    """Selection and destination of a dump.

    statistics  columns of a CSV, by the names of ``dump_stats``.
    ranges      (graph, first operator, last operator) of each dumped range.
    entries     entries of the file's dump_list, whose blacklists omit inputs and outputs.
    """

    control: DumpControl
    path: Path
    statistics: tuple[str, ...] = DEFAULT
    ranges: tuple[tuple[str, str, str], ...] = ()
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()


def plan_of(options: DumpOptions) -> Plan:
    """Return the plan. Raises ConfigError for a missing or invalid file or folder, and for contradictory options."""
    explicit = options.explicit
    if "dump_config_path" not in explicit:
        control = with_fields(DumpControl(enabled=options.enable_dump, mode=options.dump_mode), **_changes(explicit))
        return Plan(control, _checked_folder(options.dump_path, "dump_config.dump_path"))
    file = Path(explicit["dump_config_path"])
    acl = acl_json.read(file)
    control, notes = control_of(acl)
    if "dump_mode" in explicit and control.scene == "watcher" and explicit["dump_mode"] != "output":
        raise ConfigError(
            f"dump_config.dump_mode {explicit['dump_mode']} is not possible: {file} sets dump_scene "
            "to watcher, and a watcher dump contains only outputs"
        )
    if control.scene == "overflow" and any(entry.model_name or entry.layer for entry in acl.entries):
        raise ConfigError(
            f"{file}: with dump_debug=on, every operator is checked, so this setting cannot be "
            "combined with model_name or layer; remove one of the settings"
        )
    enabled = options.enable_dump and (control.enabled or "dump_layer" in explicit)
    whole = tuple((entry.model_name, entry.layer) for entry in acl.entries if entry.layer or not entry.op_name_ranges)
    models = whole if control.operators.models else ()
    control = with_fields(control, **{"enabled": enabled, "models": models, **_changes(explicit)})
    where = Path(explicit["dump_path"]) if "dump_path" in explicit else Path(acl.path)
    ranges = () if acl.single_operators or "dump_layer" in explicit else tuple(_ranges(acl.entries))
    plan = Plan(control, _checked_folder(where, "dump_path"), acl.statistics or DEFAULT, ranges, acl.entries, notes)
    return _without_choices(plan) if control.scene else replace(plan, notes=(*notes, *idle_items(plan.entries)))


def _ranges(entries: Iterable[Entry]) -> Iterator[tuple[str, str, str]]:
    for entry in entries:
        for first, last in entry.op_name_ranges:
            yield entry.model_name, first, last


def _without_choices(plan: Plan) -> Plan:
    """Remove ranges and blacklists: the scenes overflow and watcher choose operators themselves."""
    named = any(entry.op_name_ranges or entry.op_type_blacklist or entry.op_name_blacklist for entry in plan.entries)
    note = f"blacklists and opname_range have no effect in the scene {plan.control.scene}"
    return replace(plan, ranges=(), entries=(), notes=(*plan.notes, note) if named else plan.notes)


def _changes(explicit: Any) -> dict[str, Any]:
    """Return the options that were set, as fields of a DumpControl."""
    changes: dict[str, Any] = {}
    if "dump_mode" in explicit:
        changes["mode"] = explicit["dump_mode"]
    if "dump_step" in explicit:
        changes["steps"] = read_steps(explicit["dump_step"].rstrip("|"))
    if "dump_data" in explicit:
        changes["content"] = explicit["dump_data"]
    if "dump_layer" in explicit:
        changes |= {"names": tuple(explicit["dump_layer"].replace('"', " ").split()), "models": ()}
    return changes


def _checked_folder(path: str | Path, option: str) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"{option} {str(path)!r} is not a folder; create it first")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {str(path)!r} is not readable and writable; change its permissions or use another folder"
        )
    return folder.absolute()


RELOAD_SECONDS = 1.0


class LivePlan:
    """Current plan, ``now()``; the JSON file is checked for changes at most once per second."""

    def __init__(self, options: DumpOptions):
        self._options = options
        self._file = options.explicit.get("dump_config_path")
        self._changed = self._time()
        self._looked = time.monotonic()
        self.plan = plan_of(options)
        for note in self.plan.notes:
            logger.warning("%s", note)
        self.tree = Tree(self.plan.path)
        self.names = Names()
        atexit.register(self._at_exit)

    def now(self) -> Plan:
        if self._file and time.monotonic() - self._looked >= RELOAD_SECONDS:
            self._looked = time.monotonic()
            if (changed := self._time()) != self._changed:
                self._changed = changed
                self._reload()
        return self.plan

    def _at_exit(self) -> None:
        self.names.tell()
        if self.plan.control.enabled and not (self.tree.used or self.tree.stopped):
            logger.warning(
                "nothing was dumped to %s: no compiled graph ran, or the selection matches no step or operator",
                self.plan.path,
            )

    def _reload(self) -> None:
        try:
            self.plan = plan_of(self._options)
        except SgsdumpError as error:
            logger.warning("%s; the previous settings stay in force", error)
            return
        if self.plan.path != self.tree.path:
            self.tree = Tree(self.plan.path)
        logger.info("%s has changed; new settings are in force", self._file)

    def _time(self) -> int | None:
        try:
            return Path(self._file).stat().st_mtime_ns if self._file else None
        except OSError:
            return None
