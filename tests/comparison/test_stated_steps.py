"""What is compared against a golden dump by default, and how finely the central share is known."""

import numpy as np
import pytest

from sgsdump import Record, Tensor
from sgsdump.comparison.distribution import BINS, describe
from sgsdump.comparison.golden.by_tensor import compare_golden
from sgsdump.dumps.dump import Dump


@pytest.mark.parametrize(("given", "files"), [({}, ["y.npy"]), ({"inputs": True}, ["c.npy", "y.npy"])])
def test_inputs_are_left_out_unless_asked_for(given, files):
    records = [
        Record(io, 0, 0, "Add", Tensor.of(name, np.ones(3, np.float32))) for io, name in (("in", "c"), ("out", "y"))
    ]
    found = compare_golden(Dump(records), Dump(list(records)), Dump(list(records)), **given)
    assert [row.file for row in found.rows] == files


def test_the_central_share_is_known_to_a_sixteenth_of_a_bin():
    values = np.append(np.random.default_rng(0).normal(128, 30, 5000).clip(0, BINS), [0.0, BINS])
    found = describe(0, Record("out", 0, 0, "Relu", Tensor.of("x", values)), values, None)
    steps = np.array(found.central) * 16
    assert steps == pytest.approx(steps.round(), abs=1e-9) and (steps.round() % 16).any()
    inside = ((values >= found.central[0]) & (values <= found.central[1])).mean()
    assert inside == pytest.approx(0.99, abs=0.001)
