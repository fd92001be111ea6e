"""msit llm dump's own configuration: a JSON object of five keys, all of whose values are text.

::

    {"dump_enable": "true", "er": "0,0", "ids": "0,1,2", "child": "true", "device": ""}

dump_enable  only "true" dumps; missing and "" mean "false".
er           as -er; "all" for every round, missing and "" mean "0,0".
ids          as -ids; "" for every operator.
child        "true" or "false"; "" means "true".
device       as -device, several with commas between; "" for every device.

It replaces -er, -ids, -child and -device. Source: msit's documentation of llm dump, "Dump configuration file".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sgsdump.capture.control import DumpControl
from sgsdump.capture.names import read_devices, read_ids, read_truth
from sgsdump.capture.steps import read_ranges
from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

KEYS = ("dump_enable", "er", "ids", "child", "device")
_MOST_BYTES = 1 << 20


def parse(text: str, path: Path, control: DumpControl) -> DumpControl:
    """``control`` with what the file says in the place of its steps, ids, children and devices. Raises ConfigError."""
    document = json_of(text, path, "msit's dump configuration")
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: msit's dump configuration is an object, {{ }}")
    for name, value in document.items():
        if name not in KEYS:
            raise ConfigError(f"{path}: {quoted(name)} is none of its keys, {', '.join(KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {name} is {quoted(str(value))}; all values are text, in quotes")
    try:
        return replace(
            control,
            enabled=document.get("dump_enable") == "true",
            steps=read_ranges(document.get("er") or "0,0"),
            ids=read_ids(document.get("ids", "")),
            children=read_truth(document.get("child") or "true", "child"),
            devices=read_devices(document.get("device", "")),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read(path: Path, control: DumpControl) -> DumpControl:
    """``parse`` of a file. Raises ConfigError, FormatError."""
    return parse(decode(read_bytes(path, _MOST_BYTES), path), path, control)
