"""Placeholder for the SDAA accelerator back-end, whose vendor package is not public.

The vendor's inference package (a TVM with the ``sdaa`` target) comes with the accelerator's SDK. To use the package,
wrap it as in docs/own_executor.md and register the class under this name; the plug-in replaces this executor::

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
    "executor sdaa needs the accelerator vendor's inference package and a plug-in that registers it as entry point "
    "'sdaa' of the group sgsdump.executors. See docs/own_executor.md."
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
