"""Which range a tensor is listed with: that of the type it is stored with."""

from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.quantisation.calibration_log import used_ranges
from sgsdump.tensors.types import Range

WIDE = Range.of(-4, 4)
FITTED = Range(np.array([-1.0]), np.array([1.0]), wide=WIDE)


@pytest.mark.parametrize(
    ("tensor", "weight", "listed"),
    [
        (np.uint8, np.int8, {"t": FITTED, "w": FITTED, "other": FITTED}),
        (np.int16, np.int8, {"t": WIDE, "w": FITTED, "other": FITTED}),
        (np.uint8, np.int16, {"t": FITTED, "w": WIDE, "other": FITTED}),
        (np.int16, np.int16, {"t": WIDE, "w": WIDE, "other": FITTED}),
    ],
)
def test_sixteen_bits_take_the_wide_range(tensor, weight, listed):
    graph = SimpleNamespace(producer={"c": SimpleNamespace(input=["t", "w"])})
    plan = SimpleNamespace(
        tensors={"t": SimpleNamespace(dtype=np.dtype(tensor))}, weights={"c": SimpleNamespace(dtype=np.dtype(weight))}
    )
    found = used_ranges(graph, dict.fromkeys(("t", "w", "other"), FITTED), plan)
    assert list(found) == ["t", "w", "other"]
    assert all(found[name] is wanted for name, wanted in listed.items())
