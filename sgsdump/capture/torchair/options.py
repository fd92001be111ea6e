"""The options of TorchAir's compiler that say what is dumped, checked when they are set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sgsdump.capture.programs.control import read_steps
from sgsdump.errors import ConfigError, hint

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "enable_dump": False,
        "dump_mode": "all",
        "dump_path": "./",
        "quant_dumpable": False,
        "dump_step": None,
        "dump_layer": None,
        "dump_data": "tensor",
        "dump_config_path": None,
        "data_dump_stage": "optimized",
    }
)
_WORDS = {
    "dump_mode": ("input", "output", "all"),
    "dump_data": ("tensor", "stats"),
    "data_dump_stage": ("original", "optimized"),
}
_LAYERS = re.compile(r"[0-9A-Za-z_\"/\\. ]*")


class DumpOptions:
    """``config.dump_config``.

    enable_dump       the master switch; off, nothing is dumped whatever else is set.
    dump_mode         input, output or all.
    dump_path         a folder that is there; "./" is the current one.
    quant_dumpable    accepted, no effect: nothing is fused away here, values before quantisation are always there.
    dump_step         ``0|3-5|10``; None or "" for every step.
    dump_layer        operators' names, separated by spaces; None or "" for all.
    dump_data         tensor, or stats for a CSV of statistics.
    dump_config_path  a JSON file with any of these but enable_dump; options that are set win over it.
    data_dump_stage   accepted, no effect: it belongs to modes that are not max-autotune.

    Raises ConfigError for an option of another name, and for a value that it cannot have.
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_set", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _check_name(name)
        return self._set.get(name, DEFAULTS[name])

    def __setattr__(self, name: str, value: Any) -> None:
        _check_name(name)
        _check_value(name, value)
        self._set[name] = value

    def __dir__(self) -> list[str]:
        return sorted(DEFAULTS)

    @property
    def explicit(self) -> Mapping[str, Any]:
        """The options that were set, to another value than none."""
        return {name: value for name, value in self._set.items() if value not in (None, "")}


class _Taken:
    """Options of the real hardware: whatever is set is taken and has no effect here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = _Taken()
        return self.__dict__[name]


class CompilerConfig(_Taken):
    """TorchAir's configuration of a compiler: ``dump_config`` is heeded, all others are taken and have no effect.

    mode  max-autotune; dumping is for no other.
    """

    def __init__(self) -> None:
        self.dump_config = DumpOptions()
        self.mode = "max-autotune"


def _check_name(name: str) -> None:
    if name not in DEFAULTS:
        raise ConfigError(f"dump_config has no option {name!r}{hint(name, DEFAULTS)}")


def _check_value(name: str, value: Any) -> None:
    if isinstance(DEFAULTS[name], bool):
        if not isinstance(value, bool):
            raise ConfigError(f"dump_config.{name} is {value!r}; it is True or False")
    elif value is None and DEFAULTS[name] is None:
        pass
    elif not isinstance(value, str):
        raise ConfigError(f"dump_config.{name} is a {type(value).__name__}; write it as text")
    elif name in _WORDS and value not in _WORDS[name]:
        raise ConfigError(f"dump_config.{name} is {value!r}; it is one of {', '.join(_WORDS[name])}")
    elif name == "dump_step" and value:
        read_steps(value.rstrip("|"))
    elif name == "dump_layer" and not _LAYERS.fullmatch(value):
        raise ConfigError(
            f"dump_config.dump_layer {value[:80]!r}: names have letters, digits, _ . / and \\, separated by spaces"
        )
    elif name == "dump_config_path" and not value.endswith(".json"):
        raise ConfigError(f"dump_config.dump_config_path {value!r} does not end in .json")
