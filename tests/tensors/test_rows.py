"""Both ways to the lowest and highest values give the same, and what Python's own min and max say."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.tensors.one_pass import compiled
from sgsdump.tensors.one_pass.compiled import RowWatch, extremes

BOTH = pytest.mark.parametrize("kernel", [compiled._KERNEL, None], ids=["compiled", "numpy"])
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 3.4028234663852886e38, -1.401298464324817e-45, 1.0]
FLOATS = st.one_of(st.floats(width=32), st.sampled_from(ODD))
TABLES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 70)), min_size=1, max_size=4).flatmap(
    lambda shapes: st.tuples(*(arrays(np.float32, shape, elements=FLOATS) for shape in shapes))
)


@pytest.fixture(autouse=True)
def _kernel(request, monkeypatch):
    if "kernel" in request.fixturenames:
        kernel = request.getfixturevalue("kernel")
        if kernel is None and "compiled" in request.node.name:
            pytest.skip("the kernel is not built, or is switched off")
        monkeypatch.setattr(compiled, "_KERNEL", kernel)


def expected(tables):
    for row in (row for table in tables for row in table.astype(np.float64).tolist()):
        yield (math.nan, math.nan) if any(map(math.isnan, row)) else (min(row), max(row))


@BOTH
@settings(deadline=None)
@given(tables=TABLES)
def test_every_row_s_ends_are_those_of_python(kernel, tables):
    compiled._KERNEL = kernel
    found = list(zip(*(ends.tolist() for ends in extremes(tables))))
    np.testing.assert_array_equal(found, list(expected(tables)))
    assert all(math.copysign(1, end) == 1 for ends in found for end in ends if end == 0)


@BOTH
@pytest.mark.parametrize("nan", [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("place", [0, 16, 99])
def test_nan_of_any_bits_at_any_place_is_seen(kernel, nan, place):
    table = np.linspace(-1, 1, 300, dtype=np.float32).reshape(3, 100)
    table.view(np.uint32)[1, place] = nan
    low, high = extremes([table])
    assert np.isnan([low, high]).tolist() == [[False, True, False]] * 2
    assert (low[0], high[2]) == (-1, 1)


@BOTH
def test_tables_of_every_float_type_and_order_in_memory_may_stand_together(kernel):
    drawn = np.random.default_rng(0).normal(0, 5, (4, 6))
    tables = [drawn.astype(np.float16), drawn.astype(np.float32), drawn.T, drawn.astype(np.float32)[:, ::2]]
    tables += [np.frombuffer(b"\0" + drawn.astype(np.float32).tobytes(), np.float32, offset=1).reshape(4, 6)]
    np.testing.assert_array_equal(np.transpose(extremes(tables)), list(expected(tables)))


@BOTH
def test_tables_are_looked_at_again_where_they_lie(kernel):
    drawn = np.random.default_rng(0)
    groups = [[np.zeros((2, 40), np.float32), np.zeros((3, 5))], [], [np.zeros((7, 2), np.float32).T]]
    watch = RowWatch(groups)
    for _ in range(3):
        for group, tables in enumerate(groups):
            for table in tables:
                table[...] = drawn.normal(0, 5, table.shape)
            watch.look(group)
        every = [table for tables in groups for table in tables]
        np.testing.assert_array_equal(np.transpose(watch.ends()), list(expected(every)))
    before = watch.ends()[0]
    groups[0][0][...] = 99
    watch.look(2)
    np.testing.assert_array_equal(watch.ends()[0], before)


def test_the_kernel_can_be_left_out():
    code = "from sgsdump.tensors.one_pass import compiled; print(compiled._KERNEL)"
    printed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "SGSDUMP_NO_KERNEL": "1"}, capture_output=True, text=True
    )
    assert printed.stdout == "None\n", printed.stderr


def test_the_stub_names_what_the_kernel_has():
    if compiled._KERNEL is None:
        pytest.skip("the kernel is not built, or is switched off")
    stub = Path(compiled.__file__).with_name("kernel.pyi").read_text()
    named = set(re.findall(r"^(?:def )?(\w+)[:(]", stub, re.MULTILINE))
    assert named == {name for name in dir(compiled._KERNEL) if not name.startswith("_")}
