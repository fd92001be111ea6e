"""Records do not change once they are made, and those that hold arrays are compared by identity.

``==`` of two arrays is an array, which has no truth value: a record of arrays compared field by field would raise.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import sgsdump

# They are filled while a run goes on.
BUILT_UP = set("Builder Index LayerBuilder Object Operation Products Simulation Summary Unsettled Walk Written".split())
# Their equality is never asked for, or only for those without an array.
COMPARED = {"Distribution", "Quant", "Simulation", "Sizes", "Values"}


def records() -> Iterator[type]:
    for found in pkgutil.walk_packages(sgsdump.__path__, "sgsdump."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("sgsdump"):
                raise
            continue  # an extra that is not installed
        for one in vars(module).values():
            if inspect.isclass(one) and one.__module__ == found.name and dataclasses.is_dataclass(one):
                yield one


def test_records_are_frozen_and_those_of_arrays_have_no_equality() -> None:
    seen = [one for one in records() if not one.__name__.startswith("_")]
    assert len(seen) > 100
    for one in seen:
        parameters = one.__dataclass_params__  # type: ignore[attr-defined]
        assert parameters.frozen or one.__name__ in BUILT_UP, one
        arrays = any("ndarray" in str(field.type) for field in dataclasses.fields(one))
        assert not (arrays and parameters.eq) or one.__name__ in COMPARED, one
