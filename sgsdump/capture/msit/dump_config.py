"""msit's DumpConfig, its arguments and their defaults: which tensors of a torch model ``register_hook`` dumps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgsdump.capture.programs.control import DumpControl, Mode, Steps, dump_control
from sgsdump.errors import ConfigError

_MODES: tuple[Mode, ...] = ("input", "output", "all")
_KINDS = ("module", "api")


@dataclass(frozen=True)
class DumpConfig:
    """dump_path     the folder in which ``msit_dump_{time}`` is made; default: the current one.
    token_range      the tokens (runs of the model, from 0) to dump, a list of numbers; default: [0].
    module_list      classes of modules to dump; default: every module.
    api_list         functions of torch to dump (``torch.nn.functional.relu``), or their names; default: every one.
    tensor_part      0 inputs, 1 outputs, 2 both.
    device_id        dump only where the model is on the device of this number; a model on the CPU is always dumped.
    dump_last_logits only the output of the module that ends last within the model.
    mode             "module" (default), "api" (calls of torch's functions, under the module they are made in), or both
                     in a list.
    dump_weight      the parameters too, in the folder ``weights``.
    layer_name       the name to dump, ``*`` standing for anything: ``root.model.layers.0*``. It begins with root.
    seed             a number from which random, numpy and torch start, deterministic algorithms on; default: as it is.
    dump_statistics_mode   0 values, 1 statistics (max, min, mean, l2norm) instead of them, 2 both.
    analyze          msit's table of what was dumped; ``sgsdump show TREE --csv FILE`` writes it.

    Raises ConfigError for a value that cannot be.
    """

    dump_path: str | None = None
    token_range: Sequence[int] | None = None
    module_list: Sequence[type] | None = None
    api_list: Sequence[Callable[..., Any] | str] | None = None
    tensor_part: int = 2
    device_id: int | None = None
    dump_last_logits: bool = False
    mode: str | Sequence[str] | None = None
    dump_weight: bool = False
    layer_name: str | None = None
    seed: int | None = None
    dump_statistics_mode: int = 0
    analyze: bool = False

    def __post_init__(self) -> None:
        _check("token_range", self.token_range, "a list of token numbers from 0", _are_numbers)
        _check("module_list", self.module_list, "a list of module classes", _are_classes)
        _check("api_list", self.api_list, "a list of torch's functions or of their names", _are_functions)
        _check("device_id", self.device_id, "a device's number", lambda value: type(value) is int and value >= 0)
        _check("seed", self.seed, "a whole number from 0", lambda value: type(value) is int and 0 <= value < 2**32)
        _check("layer_name", self.layer_name, "a name such as root.layers.0*", lambda value: isinstance(value, str))
        _check("mode", self.mode, "module, api, or a list of both", lambda value: set(self.kinds) <= set(_KINDS))
        for name in ("tensor_part", "dump_statistics_mode"):
            value = getattr(self, name)
            if type(value) is not int or value not in (0, 1, 2):
                raise ConfigError(f"{name} is 0, 1 or 2, not {value!r}")
        for name in ("dump_last_logits", "dump_weight", "analyze"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"{name} is True or False, not {getattr(self, name)!r}")
        if self.analyze:
            warnings.warn("analyze writes nothing: sgsdump show TREE --csv FILE lists what was dumped", stacklevel=3)
        if self.seed is not None:
            start_random_numbers_at(self.seed)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of module and api, those that are dumped."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode or ("module",))

    @property
    def keeps_values(self) -> bool:
        return self.dump_statistics_mode != 1

    @property
    def keeps_statistics(self) -> bool:
        return self.dump_statistics_mode != 0

    @property
    def control(self) -> DumpControl:
        """The same as the record that every way of dumping a program goes by."""
        tokens = self.token_range or [0]
        return dump_control(
            mode=_MODES[self.tensor_part],
            steps=Steps(tuple((token, token) for token in tokens)),
            patterns=() if self.layer_name is None else (pattern_of(self.layer_name),),
            content="tensor" if self.keeps_values else "stats",
            devices=() if self.device_id is None else (self.device_id,),
            seed=self.seed,
        )

    def wants_layer(self, name: str) -> bool:
        """Whether ``layer_name`` names this module, parameter or function."""
        return self.layer_name is None or re.fullmatch(pattern_of(self.layer_name), name, re.DOTALL) is not None

    def wants_function(self, function: Any, name: str) -> bool:
        """Whether ``api_list`` has a function of torch."""
        return not self.api_list or any(item is function or item == name for item in self.api_list)


def pattern_of(layer_name: str) -> str:
    """The regular expression of a name in which ``*`` stands for anything, and nothing else for more than itself."""
    return ".*".join(map(re.escape, layer_name.split("*")))


def start_random_numbers_at(seed: int) -> None:
    """Let the generators of Python, numpy and torch start from a number, and torch take deterministic algorithms."""
    import os
    import random

    import numpy as np

    from sgsdump.capture.msit.bin_data import torch_for

    torch = torch_for("start its random numbers from a seed")
    os.environ["PYTHONHASHSEED"] = str(seed)  # of the processes that are started from here on
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def _check(name: str, value: Any, expected: str, fits: Callable[[Any], bool]) -> None:
    if value is not None and not fits(value):
        raise ConfigError(f"{name} is {expected}, not {str(value)[:80]!r}")


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple | range) and all(type(item) is int and item >= 0 for item in value)


def _are_classes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, type) for item in value)


def _are_functions(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(callable(item) or isinstance(item, str) for item in value)
