"""msit's DumpConfig with its arguments and defaults: the tensors of a torch model that ``register_hook`` dumps."""

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
    """Selection of the tensors that ``register_hook`` dumps.

    Parameters
    ----------
    dump_path : str, optional
        Folder in which ``msit_dump_{time}`` is created; default: the current folder.
    token_range : sequence of int, optional
        Tokens to dump, counted from 0; a token is one run of the model. Default: [0].
    module_list : sequence of type, optional
        Module classes to dump; default: every module.
    api_list : sequence of callable or str, optional
        torch functions to dump (``torch.nn.functional.relu``), or their names; default: every function.
    tensor_part : int, default 2
        0 for inputs, 1 for outputs, 2 for both.
    device_id : int, optional
        Dump only if the model is on the device of this number. A model on the CPU is always dumped.
    dump_last_logits : bool, default False
        Dump only the output of the module that ends last within the model.
    mode : str or sequence of str, optional
        "module" (default), "api" (calls of torch functions, under the module that calls them), or both in a list.
    dump_weight : bool, default False
        Dump the parameters too, to the folder ``weights``.
    layer_name : str, optional
        Name to dump, beginning with root; ``*`` stands for any text: ``root.model.layers.0*``.
    seed : int, optional
        Seed of the generators of random, numpy and torch; a seed also enables deterministic algorithms.
    dump_statistics_mode : int, default 0
        0 for values, 1 for statistics (max, min, mean, l2norm), 2 for both.
    analyze : bool, default False
        Accepted with a warning; no effect. ``sgsdump show TREE --csv FILE`` writes the table of dumped tensors.

    Raises
    ------
    ConfigError
        If a value is not allowed.

    Examples
    --------
    ::

        from sgsdump.capture.msit import DumpConfig, register_hook

        hook = register_hook(model, DumpConfig(dump_path="dumps", token_range=[0, 1]))
        model(x)
        hook.remove()
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
        _check("api_list", self.api_list, "a list of torch functions or their names", _are_functions)
        _check("device_id", self.device_id, "a device number", lambda value: type(value) is int and value >= 0)
        _check("seed", self.seed, "an integer from 0", lambda value: type(value) is int and 0 <= value < 2**32)
        _check("layer_name", self.layer_name, "a name such as root.layers.0*", lambda value: isinstance(value, str))
        _check("mode", self.mode, "module, api, or a list of both", lambda value: set(self.kinds) <= set(_KINDS))
        for name in ("tensor_part", "dump_statistics_mode"):
            value = getattr(self, name)
            if type(value) is not int or value not in (0, 1, 2):
                raise ConfigError(f"{name} must be 0, 1 or 2, not {value!r}")
        for name in ("dump_last_logits", "dump_weight", "analyze"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.analyze:
            warnings.warn("analyze has no effect; sgsdump show TREE --csv FILE lists the dumped tensors", stacklevel=3)
        if self.seed is not None:
            start_random_numbers_at(self.seed)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of calls to dump: module, api or both."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode or ("module",))

    @property
    def keeps_values(self) -> bool:
        return self.dump_statistics_mode != 1

    @property
    def keeps_statistics(self) -> bool:
        return self.dump_statistics_mode != 0

    @property
    def control(self) -> DumpControl:
        """The same selection as a DumpControl."""
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
        """Return whether ``layer_name`` matches the name of a module, parameter or function."""
        return self.layer_name is None or re.fullmatch(pattern_of(self.layer_name), name, re.DOTALL) is not None

    def wants_function(self, function: Any, name: str) -> bool:
        """Return whether ``api_list`` contains a torch function; True without a list."""
        return not self.api_list or any(item is function or item == name for item in self.api_list)


def pattern_of(layer_name: str) -> str:
    """Return the regular expression of a name in which ``*`` stands for any text."""
    return ".*".join(map(re.escape, layer_name.split("*")))


def start_random_numbers_at(seed: int) -> None:
    """Seed the generators of Python, numpy and torch, and enable torch's deterministic algorithms."""
    import os
    import random

    import numpy as np

    from sgsdump.capture.msit.bin_data import torch_for

    torch = torch_for("seed its random numbers")
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes started from here on
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def _check(name: str, value: Any, expected: str, fits: Callable[[Any], bool]) -> None:
    if value is not None and not fits(value):
        raise ConfigError(f"{name} must be {expected}, not {str(value)[:80]!r}")


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple | range) and all(type(item) is int and item >= 0 for item in value)


def _are_classes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, type) for item in value)


def _are_functions(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(callable(item) or isinstance(item, str) for item in value)
