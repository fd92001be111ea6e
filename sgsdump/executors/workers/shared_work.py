"""What the tasks on a cluster share, as it travels from worker to worker, and how one task is done with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sgsdump import __version__
from sgsdump.errors import WorkerError

COMPUTING = ("numpy", "onnx", "onnxruntime")


def versions() -> dict[str, str]:
    """Of sgsdump and of the packages whose version may change a result's bits."""
    installed = {"sgsdump": __version__}
    for name in COMPUTING:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


class Recipe:
    """What tasks share. Each thread makes its own work of it, which goes when the cluster lets go of the recipe."""

    def __init__(self, made_for: dict[str, str], make_work: Callable, given: tuple):
        self._parts = (made_for, make_work, given)
        self._own = threading.local()

    def __reduce__(self) -> tuple:
        return Recipe, self._parts

    def work(self) -> Callable[[Any], Any]:
        if not hasattr(self._own, "work"):
            made_for, make_work, given = self._parts
            here = versions()
            for name, wanted in made_for.items():
                if here.get(name) != wanted:
                    raise WorkerError(
                        f"a worker on {socket.gethostname()} has {name} {here.get(name)}, here it is {wanted}; results "
                        f"might differ, so install the same version on all machines"
                    )
            self._own.work = make_work(*given)
        return self._own.work


class Parcel:
    """Keeps Dask from looking for tasks inside an item."""

    def __init__(self, item: Any):
        self.item = item


def do(recipe: Recipe, parcel: Parcel) -> Any:
    """One task."""
    return recipe.work()(parcel.item)
