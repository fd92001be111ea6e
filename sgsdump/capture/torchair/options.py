"""The dump options of TorchAir's compiler configuration, checked when they are set."""

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
    """Options of a dump, ``config.dump_config``.

    Attributes
    ----------
    enable_dump : bool
        Master switch. If False, nothing is dumped, whatever else is set.
    dump_mode : str
        "input", "output" or "all".
    dump_path : str
        An existing folder; "./" is the current one.
    quant_dumpable : bool
        Accepted for compatibility; no effect: nothing is fused away here, so values before quantisation are always
        dumped.
    dump_step : str or None
        Steps to dump, ``0|3-5|10``; None or "" for every step.
    dump_layer : str or None
        Names of operators, separated by spaces; None or "" for all.
    dump_data : str
        "tensor" for values, "stats" for a CSV of statistics.
    dump_config_path : str or None
        JSON file with any of these options except enable_dump. Options that are set here take precedence over the file.
    data_dump_stage : str
        Accepted for compatibility; no effect: the option belongs to modes other than max-autotune.

    Raises
    ------
    ConfigError
        If an unknown option is read or set, or a value is not allowed.
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
        """Options that were set to a value other than None or ""."""
        return {name: value for name, value in self._set.items() if value not in (None, "")}


class _Taken:
    """Options of the real hardware: every option is accepted and has no effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = _Taken()
        return self.__dict__[name]


class CompilerConfig(_Taken):
    """Compiler configuration of TorchAir; only ``dump_config`` and ``mode`` have an effect, all others are accepted.

    Attributes
    ----------
    dump_config : DumpOptions
        Options of the dump.
    mode : str
        "max-autotune"; operators are dumped in no other mode.
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
            raise ConfigError(f"dump_config.{name} is {value!r}; use True or False")
    elif value is None and DEFAULTS[name] is None:
        pass
    elif not isinstance(value, str):
        raise ConfigError(f"dump_config.{name} is a {type(value).__name__}; use a string")
    elif name in _WORDS and value not in _WORDS[name]:
        raise ConfigError(f"dump_config.{name} is {value!r}; use one of {', '.join(_WORDS[name])}")
    elif name == "dump_step" and value:
        read_steps(value.rstrip("|"))
    elif name == "dump_layer" and not _LAYERS.fullmatch(value):
        raise ConfigError(
            f"dump_config.dump_layer {value[:80]!r}: use letters, digits, _ . / and \\, with spaces between names"
        )
    elif name == "dump_config_path" and not value.endswith(".json"):
        raise ConfigError(f"dump_config.dump_config_path {value!r} does not end in .json")
