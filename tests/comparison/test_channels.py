"""The sums of channels and what they are judged by."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sgsdump import Tensor, compare, save_dump
from sgsdump.comparison import channels
from sgsdump.comparison.sums import summation
from sgsdump.comparison.sums.tiles import ENOUGH, ChannelSums
from sgsdump.dumps.dump import Dump, Record

NUMBERS = st.floats(0, 1e6) | st.sampled_from([0.0, 1e-12, 1.0, 1e5, float("inf"), float("nan")])


@pytest.mark.skipif(summation._KERNEL is None, reason="there is no kernel")
@given(hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 200)), elements=NUMBERS), st.floats(0, 1))
def test_the_kernel_judges_as_python_does(totals, step):
    count = totals.shape[1]
    sums = ChannelSums((1, count, 4, 4), 1)
    sums.totals[:] = totals
    with pytest.MonkeyPatch.context() as patched:
        by_kernel = channels.channels_of(sums, 16 * count, step)
        patched.setattr(channels, "judged_channels", lambda *_: False)
        assert by_kernel == channels.channels_of(sums, 16 * count, step)


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize(("error", "lost"), [(0.5, 1), (np.nextafter(0.5, 0), 0)])
def test_a_channel_that_is_exactly_half_lost_is_lost(monkeypatch, by_kernel, error, lost):
    if by_kernel and summation._KERNEL is None:
        pytest.skip("there is no kernel")
    if not by_kernel:
        monkeypatch.setattr(channels, "judged_channels", lambda *_: False)
    sums = ChannelSums((1, 5, 4, 4), 1)
    sums.totals[:] = [[0.001, 0.001, error, 0.001, 0.001], [1.0] * 5]
    judged = channels.channels_of(sums, 5 * 16)
    assert judged is not None and (judged.lost, judged.worst, judged.worst_rmse) == (lost, 2, error)


@pytest.mark.parametrize("axis", [1, 3])
def test_a_channel_that_a_share_shows_as_lost_is_judged_by_all_its_values(axis):
    shape = (1, 8, 64, 64) if axis == 1 else (1, 64, 64, 8)
    layout = "NCHW" if axis == 1 else "NHWC"
    benchmark = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sample = benchmark.copy()
    np.moveaxis(sample, axis, 0)[3] *= 0.25  # off by 0.75 everywhere
    np.moveaxis(sample, axis, 0)[3].reshape(-1)[-64 * 64 // 4 :] = 0  # by 1 in the last quarter
    dumps = [Dump([Record("out", 0, 0, "Conv", Tensor.of("c", v, layout=layout))]) for v in (sample, benchmark)]
    [row] = compare(*dumps).rows
    assert 2 * ENOUGH < 64 * 64 and row.channels is not None and (row.channels.lost, row.channels.worst) == (1, 3)
    of_channel = [np.moveaxis(side, axis, 0)[3].astype(np.float64) for side in (sample, benchmark)]
    exact = np.abs(of_channel[0] - of_channel[1]).sum() / np.abs(of_channel[1]).sum()
    assert row.channels.worst_rmse == pytest.approx(exact, rel=1e-6)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="files are read by their map")
def test_small_layers_are_read_many_at_a_time(tmp_path, monkeypatch):
    layers = np.random.default_rng(0).standard_normal((600, 1, 2, 4, 8), np.float32)
    for number, name in enumerate(("a.bin", "b.bin")):
        tensors = [Tensor.of(f"l{i}", v + np.float32(0.1 * number), layout="NHWC") for i, v in enumerate(layers)]
        save_dump(tensors, tmp_path / name, on_loss="ignore")
    calls = {"stat": 0, "fstat": 0, "preadv": 0}

    def counted(name):
        call = getattr(os, name)

        def count(*args, **options):
            calls[name] += 1
            return call(*args, **options)

        return count

    for name in calls:
        monkeypatch.setattr(os, name, counted(name))
    assert len(compare(tmp_path / "a.bin", tmp_path / "b.bin", threads=1)) == 600
    assert sum(calls.values()) < 600 / 2
