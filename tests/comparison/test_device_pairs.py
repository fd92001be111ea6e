"""Tensors in device layouts are compared as what they mean, or as they lie where that is not known."""

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.comparison.distribution import Undrawn, distributions
from sgsdump.comparison.golden import compare_golden
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.device import Origin, to_device
from sgsdump.tensors.tensor import Quant, Tensor

VALUES = np.random.default_rng(0).normal(size=(1, 5, 6, 7)).astype(np.float32)
ORIGIN = Origin(VALUES.shape, "NCHW")


def dump(tensor):
    return Dump([Record("out", 0, 0, "CONV", tensor)])


def plain(values=VALUES, layout="NCHW"):
    return dump(Tensor.of("conv", values, layout=layout))


def blocked(values=VALUES, origin=ORIGIN, padding=0.0):
    stored = to_device(values, "NCHW", "NC1HWC0")
    stored[..., 5:] = padding
    return dump(Tensor.of("conv", stored, layout="NC1HWC0", origin=origin))


@pytest.mark.parametrize("turned", [False, True])
def test_a_tensor_in_blocks_equals_the_plain_one(turned):
    sides = [blocked(), plain()]
    (row,) = compare(*(reversed(sides) if turned else sides)).rows
    assert (row.mse, row.count) == (0.0, VALUES.size)
    assert row.note == f"{'benchmark' if turned else 'sample'} NC1HWC0 to NCHW"


def test_and_one_in_the_other_plain_layout():
    (row,) = compare(blocked(), plain(VALUES.transpose(0, 2, 3, 1), "NHWC")).rows
    assert row.mse == 0.0


def test_what_differs_is_seen():
    values = VALUES.copy()
    values[0, 4, 5, 6] += 1
    (row,) = compare(blocked(values), plain()).rows
    assert row.mse == pytest.approx(1 / VALUES.size)


def test_leftovers_in_the_padding_do_not_count():
    (row,) = compare(blocked(padding=9.0), blocked()).rows
    assert (row.mse, row.count) == (0.0, VALUES.size)


def test_without_the_original_shape_it_is_not_guessed():
    found = compare(blocked(origin=None), plain())
    assert not found.rows and "does not give the original shape" in found.failed[0].reason


def test_two_alike_without_the_original_shape_are_compared_as_they_lie():
    (row,) = compare(blocked(origin=None), blocked()).rows
    assert (row.mse, row.count) == (0.0, 6 * 7 * 16)
    assert "including padding," in row.note and "is unknown" in row.note


def test_a_vendors_tool_compares_logical_tensors_too():
    """See ``test_ge_compare``: its own report of blocked tensors gives the statistics without padding."""
    (row,) = compare(blocked(padding=9.0), blocked(), compatible="msaccucmp").rows
    assert row.count == 5 * 6 * 7 and row.mse == 0
    assert row.vendor["MaxAbsoluteError"] == "0.000000"


def test_quantised_blocks_are_dequantised():
    stored = np.arange(-105, 105, dtype=np.int8).reshape(1, 5, 6, 7)
    device = to_device(stored, "NCHW", "NC1HWC0", 32)
    quant = Quant(np.dtype(np.int8), np.arange(1, 6) / 4, 0, 1, exact=True)
    sample = dump(Tensor.of("conv", device, layout="NC1HWC0", origin=ORIGIN, quant=quant))
    (row,) = compare(sample, plain(stored * (np.arange(1, 6, dtype=np.float32) / 4).reshape(1, 5, 1, 1))).rows
    assert row.mse == 0.0


def test_three_runs():
    (row,) = compare_golden(blocked(), plain(), blocked(padding=3.0)).rows
    assert row.diff2 == 0.0 and row.max_sw == row.max_g == 0.0
    (row,) = compare_golden(*[blocked(origin=None)] * 3).rows
    assert not row.reason and row.diff2 == 0.0


def test_histograms_are_of_the_logical_values():
    (drawn,) = distributions(blocked(padding=99.0), {})
    assert (drawn.stats.count, drawn.stats.max) == (VALUES.size, VALUES.max())
    (undrawn,) = distributions(blocked(origin=None), {})
    assert isinstance(undrawn, Undrawn) and "original shape" in undrawn.reason
