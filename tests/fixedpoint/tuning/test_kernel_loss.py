"""What kernels lose beyond what a quantised model says, with sessions whose outputs are given."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from small_nets import residual_net

from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ModelError
from sgsdump.fixedpoint.tuning import kernel_loss as module
from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial
from sgsdump.fixedpoint.tuning.kernel_loss import KernelLoss, kernel_loss
from sgsdump.models.model import Model

LIMITS = Thresholds(max_rmse=0.1)
REAL = np.array([[1.0, -1.0, 1.0, -1.0]], np.float32)


def measured(monkeypatch: pytest.MonkeyPatch, as_run: float, precise: float, defined: float) -> KernelLoss | None:
    """With these relative errors of the one output."""
    errors = {"": as_run, "entries": precise, "level": defined}

    class Session:
        def __init__(self, path: Any, options: Mapping[str, Any]):
            self._error = errors[next(iter(options), "")]

        def run(self, feed: Any, names: list[str]) -> dict[str, np.ndarray]:
            assert names == ["prob"]
            return {"prob": REAL + np.float32(self._error) * np.array([[1, 1, -1, -1]], np.float32)}

    monkeypatch.setattr(module, "ProgramSession", Session)
    network = SimpleNamespace(outputs=["prob"], run=lambda feed, quantised: {"prob": REAL})
    return kernel_loss(residual_net(), ExclusionTrial(network, [{}, {}]), LIMITS)


@pytest.mark.parametrize(
    ("errors", "is_told", "saturating", "good"),
    [
        ((0.09, 0.01, 0.01), False, None, None),  # within the limits, however much better it could be
        ((0.148, 0.099, 0.099), False, None, None),
        ((0.149, 0.099, 0.099), True, True, True),  # half as much again
        ((0.4, 0.01, 0.02), True, True, True),
        ((0.4, 0.01, 0.4), True, True, True),  # integer operators saturate however they are run
        ((0.4, 0.22, 0.02), True, False, True),
        ((0.4, 0.2, 0.02), True, True, True),  # half of the difference and more
        ((0.4, 0.4, 0.02), True, False, True),
        ((0.4, 0.4, 0.2), True, False, False),
    ],
)
def test_what_is_lost_and_by_what(monkeypatch, errors, is_told, saturating, good):
    loss = measured(monkeypatch, *errors)
    assert (loss is not None) == is_told
    if loss is not None:
        assert (loss.saturating, loss.good) == (saturating, good)


def test_a_file_that_does_not_load_is_an_error(tmp_path):
    (tmp_path / "q.onnx").write_bytes(b"\x08")
    network = SimpleNamespace(outputs=["prob"], run=lambda feed, quantised: {"prob": REAL})
    model = Model(onnx.ModelProto(), tmp_path / "q.onnx")
    with pytest.raises(ModelError, match="cannot load"):
        kernel_loss(model, ExclusionTrial(network, [{}]), LIMITS)
