from __future__ import annotations

import numpy as np
import pytest

from sgsdump.executors.onnx_runtime.session import _aligned


@pytest.mark.parametrize("shape", [(3,), (5, 7), (1000, 1000)])
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_memory_begins_where_onnxruntime_would_begin_it(shape: tuple[int, ...], dtype: type) -> None:
    array = _aligned(shape, np.dtype(dtype))
    assert (array.shape, array.dtype, array.ctypes.data % 64) == (shape, dtype, 0)
    assert array.flags.c_contiguous
    assert array.flags.writeable
