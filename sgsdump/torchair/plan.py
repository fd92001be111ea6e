"""What is dumped and where to: from the options that were set, and the JSON file that they name."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgsdump.capture.configs import acl_json
from sgsdump.capture.configs.acl_use import control_of
from sgsdump.capture.control import DumpControl
from sgsdump.capture.steps import read_steps
from sgsdump.dumps.formats.ascend.statistics_rows import DEFAULT
from sgsdump.errors import ConfigError
from sgsdump.torchair.options import DumpOptions


@dataclass(frozen=True)
class Plan:
    """statistics  those of a CSV, by the names of ``dump_stats``."""

    control: DumpControl
    path: Path
    statistics: tuple[str, ...] = DEFAULT
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
    control = replace(control, enabled=options.enable_dump and (control.enabled or "dump_layer" in given))
    control = replace(control, **_changes(given))
    where = Path(given["dump_path"]) if "dump_path" in given else Path(acl.path)
    return Plan(control, _checked_folder(where, "dump_path"), acl.statistics or DEFAULT, notes)


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
