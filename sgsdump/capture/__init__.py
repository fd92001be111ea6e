"""The plug-in that dumps running programs: ``exec``, ``sgsdump.capture``, msit's and TorchAir's names.

``sgsdump.capture`` is a public function, and importing this package binds its name there. So the package can be called:
``sgsdump.capture(folder)`` works before and after the import.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from sgsdump.capture.programs.capture import capture

        return capture(*args, **options)


sys.modules[__name__].__class__ = _Callable
