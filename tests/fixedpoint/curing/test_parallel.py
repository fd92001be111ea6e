"""``cure`` runs as many images in parallel as there are cores, if their tensors fit into memory."""

import numpy as np
import pytest
from small_nets import conv, model, weights

from sgsdump.fixedpoint.curing import parallel
from sgsdump.fixedpoint.curing.parallel import threads_for


@pytest.mark.parametrize(("room", "threads"), [(1 << 30, 4), (3 * 2048, 3), (2 * 2048 - 1, 1), (1, 1)])
def test_threads_are_as_many_as_cores_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, room: int, threads: int
) -> None:
    """The image has 3 · 64 values, the convolution 5 · 64: 2,048 bytes; weights do not count."""
    net = model([conv("c", "data")], weights("c", (5, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["c"])
    monkeypatch.setattr(parallel, "cores", lambda: 4)
    monkeypatch.setattr(parallel, "RUN_BYTES", room)
    assert threads_for(net.proto, {"data": np.zeros((1, 3, 8, 8), np.float32)}) == threads
