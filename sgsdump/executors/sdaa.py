"""SDAA accelerators: a place for the vendor's back-end, whose package is not public.

The vendor's inference package (its TVM with the ``sdaa`` target) comes with the accelerator's SDK. To use it,
wrap it as in docs/own_executor.md and register it under this name; the plug-in replaces this executor:

    [project.entry-points."sgsdump.executors"]
    sdaa = "my_package.sdaa:SdaaExecutor"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sgsdump.errors import MissingExtra
from sgsdump.executors.base import Configs, Executor

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

NEEDED = (
    "the executor sdaa needs the accelerator vendor's inference package, and a package that offers it by the entry "
    "point 'sdaa' of the group sgsdump.executors; how to write one: docs/own_executor.md"
)


class SdaaExecutor(Executor):
    name = "sdaa"
    init_options: ClassVar = {"passes": "the vendor's passes file with use_passes(ir_module, configs)"}

    def on_init(self, configs: Configs) -> None:
        raise MissingExtra(NEEDED)

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        raise MissingExtra(NEEDED)

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        raise MissingExtra(NEEDED)
