"""The plug-in for running programs: ``exec``, ``check``, ``sgsdump.capture``, and functions of msit and TorchAir.

``sgsdump.capture`` is a public function, but importing this package binds the package to that name. The package is
therefore callable: ``sgsdump.capture(folder)`` works before and after the import.
"""

import sys
from types import ModuleType
from typing import Any

from sgsdump.plugins import Command, Plugin


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from sgsdump.capture.programs.capture import capture

        return capture(*args, **options)


sys.modules[__name__].__class__ = _Callable

PLUGIN = Plugin(
    commands={
        "exec": Command(
            "sgsdump.capture.commands.exec",
            "dump a running program that uses torch or onnxruntime",
            "dump",
            after="dump",
        ),
        "check": Command(
            "sgsdump.capture.commands.check",
            "judge each operator of a run alone",
            "compare and inspect",
            after="judge",
        ),
    },
    modules={name: f"sgsdump.capture.{name}" for name in ("msit", "programs", "torchair")},
    names={"capture": "sgsdump.capture.programs.capture", "DumpControl": "sgsdump.capture.programs.control"},
)
