"""The compiled kernel and numpy: the same bits, whatever the values; and sums that are right, by exact arithmetic."""

import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from platforms import unix_only
from resident_pages import resident

from sgsdump import compare, open_dump
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.same_values import probe_all
from sgsdump.comparison.sums import summation, tiles
from sgsdump.comparison.sums.summation import pair_sums, sums_of_each
from sgsdump.comparison.sums.tiles import CHUNK, LANES, PART, ChannelSums, Picked, ToSum
from sgsdump.errors import FileChanged
from sgsdump.files.mapped import map_file, view
from sgsdump.tensors.tensor import Quant, Tensor, Values, values_of

kernel = summation._KERNEL
compiled_only = pytest.mark.skipif(kernel is None, reason="the kernel is not built, or is switched off")
VECTORS = ("AVX-512", "AVX2", "plain C")
SIZES = (0, 1, LANES - 1, LANES, LANES + 1, 5 * LANES + 3, CHUNK - 1, CHUNK, CHUNK + LANES + 1, 3 * CHUNK + 1025)
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 3.4e38, 1e-45, 1.0, -1.0, 16777217.0]
FLOATS = st.one_of(st.floats(width=32), st.sampled_from(ODD).map(lambda value: float(np.float32(value))))
PAIRS = st.integers(0, 600).flatmap(lambda n: st.tuples(*[arrays(np.float32, n, elements=FLOATS)] * 2))


@pytest.fixture(params=VECTORS)
def vectors(request):
    if kernel is None:
        pytest.skip("the kernel is not built, or is switched off")
    before = kernel.vectors()
    if not kernel.use(request.param):
        pytest.skip(f"no {request.param} on this processor")
    yield request.param
    assert kernel.use(before)


def bits(sums):
    """Every field to the last bit; one NaN is like another."""
    return [value.hex() if isinstance(value, float) else value for value in sums.numbers]


def by_numpy(a, b):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summation, "_KERNEL", None)
        return pair_sums(a, b)


def small_parts(monkeypatch):
    for module in (tiles, summation):
        monkeypatch.setattr(module, "PART", 4 * CHUNK)


def both_ways(a, b):
    a, b = (side if isinstance(side, Values) else Values(side) for side in (a, b))
    assert summation.takes(a) and summation.takes(b), "else nothing is compared"
    return bits(pair_sums(a, b)), bits(by_numpy(a, b))


@pytest.mark.parametrize("size", SIZES)
def test_every_size(vectors, size):
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal(size).astype(np.float32) * 10.0 ** rng.integers(-5, 5) for _ in range(2))
    kernels, numpys = both_ways(a.astype(np.float32), b.astype(np.float32))
    assert kernels == numpys


@given(PAIRS)
@compiled_only
def test_whatever_is_drawn(pair):
    kernels, numpys = both_ways(*pair)
    assert kernels == numpys


def test_what_is_not_finite_is_counted_where_it_is(vectors):
    a, b = (np.ones(2 * CHUNK + 7, np.float32) for _ in range(2))
    a[[3, CHUNK, 2 * CHUNK + 6]] = np.nan, -np.inf, np.inf
    b[[3, CHUNK, 5]] = np.nan, np.inf, -np.inf
    a[7] = b[7] = np.inf
    sums = pair_sums(Values(a), Values(b))
    odd = sums.odd
    assert (odd.sample_nan, odd.sample_inf, odd.sample_minus_inf) == (1, 3, 1)
    assert (odd.benchmark_nan, odd.benchmark_inf, odd.benchmark_minus_inf) == (1, 3, 1)
    assert odd.odd_apart == 3
    kernels, numpys = both_ways(a, b)
    assert kernels == numpys


def test_values_at_odd_addresses(vectors):
    raw = np.frombuffer(bytes(range(256)) * 41, np.uint8)
    for start in range(1, 4):
        shifted = raw[start : start + 10240].view(np.float32)
        assert not shifted.flags.aligned
        kernels, numpys = both_ways(shifted, shifted[::-1].copy())
        assert kernels == numpys


EVERY_HALF = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_value_of_16_bits(vectors, dtype):
    """One at a time beside 0: Σ|b| is the value itself, and so is Σab beside 1."""
    values = EVERY_HALF.view(dtype)
    for side in (values, values[:: 1 << 7], np.ones((3, 5), dtype).T):
        kernels, numpys = both_ways(np.ones(side.shape, np.float32), side)
        assert kernels == numpys
    finite = values[np.isfinite(values.astype(np.float32))]
    for value in finite[:: 1 << 6]:
        sums = pair_sums(Values(np.ones(1, np.float32)), Values(np.array([value])))
        assert sums.ab == float(value)


@pytest.mark.parametrize("scale", [0.0, 0.0078125, 0.1, 3.3e38, 1e-44, math.inf, math.nan])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantised_against_float(vectors, dtype, scale):
    info = np.iinfo(dtype)
    stored = np.arange(info.min, info.max + 1).astype(dtype)
    rng = np.random.default_rng(1)
    for zero_point in (0, -7, 128, 1 << 20):
        quant = Quant(np.dtype(dtype), scale, zero_point, exact=True)
        sample = values_of(Tensor.of("x", stored, quant=quant))
        benchmark = rng.standard_normal(stored.size).astype(np.float32)
        kernels, numpys = both_ways(sample, benchmark)
        assert kernels == numpys
    kernels, numpys = both_ways(stored, benchmark)
    assert kernels == numpys


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple)
STORED = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16)


@settings(max_examples=100)
@given(SHAPES, st.data())
@compiled_only
def test_any_view_against_any_other(shape, data):
    """Two views of one shape: axes in any order in memory, steps, and values read backwards."""
    kernels, numpys = both_ways(*[drawn_view(shape, data) for _ in range(2)])
    assert kernels == numpys


def drawn_view(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    memory = [shape[axis] * abs(steps[axis]) for axis in order]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.integers(0, 100, memory).astype(data.draw(st.sampled_from(STORED)))
    return values.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]


@pytest.mark.parametrize(
    "shape",
    [(1, 3, 70, 80), (1, 300, 5, 5), (2, 65, 40, 41), (5, 17, 1, 900), (1, 1, 300, 300), (1, 2, 1 << 11, 1 << 11)],
)
def test_transposed_layouts(vectors, shape):
    rng = np.random.default_rng(2)
    nchw = rng.standard_normal(shape).astype(np.float32)
    nhwc = np.ascontiguousarray((nchw + np.float32(0.1)).transpose(0, 2, 3, 1))
    for a, b in ((nchw, nhwc.transpose(0, 3, 1, 2)), (nchw.transpose(0, 2, 3, 1), nhwc)):
        kernels, numpys = both_ways(a, b)
        assert kernels == numpys
        assert pair_sums(Values(a), Values(b)).d1 == pytest.approx(nchw.size * 0.1, rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("shape", [(1, 128, 64, 64), (2, 208, 9, 70), (1, 512, 20, 20), (1, 720, 33, 16)])
def test_transposed_layouts_of_wide_tiles(vectors, shape, dtype):
    """Tiles are summed by stripes of 16 rows; a side whose rows are contiguous is not packed."""
    rng = np.random.default_rng(12)
    nchw = rng.integers(-100, 100, shape).astype(dtype)
    nhwc = np.ascontiguousarray(rng.standard_normal(shape, np.float32).transpose(0, 2, 3, 1))
    for odd in (0.0, math.nan, -math.inf):
        nhwc[0, 3, 5, 7] = odd
        for a, b in ((nchw, nhwc.transpose(0, 3, 1, 2)), (nchw.transpose(0, 2, 3, 1), nhwc)):
            kernels, numpys = both_ways(a, b)
            assert kernels == numpys


@pytest.mark.parametrize("shape", [(1, 128, 64, 64), (1, 20, 33, 16), (1, 512, 20, 20)])
def test_channels_of_transposed_layouts(vectors, shape):
    rng = np.random.default_rng(13)
    nchw = rng.standard_normal(shape, np.float32)
    nhwc = np.ascontiguousarray(rng.standard_normal(shape, np.float32).transpose(0, 2, 3, 1))
    for axis, a, b in ((1, nchw, nhwc.transpose(0, 3, 1, 2)), (3, nchw.transpose(0, 2, 3, 1), nhwc)):
        channels = ChannelSums(a.shape, axis, skip=1)
        list(sums_of_each([ToSum(Values(a), Values(b), True, channels=channels)]))
        others = tuple(i for i in range(4) if i != axis)
        expected = np.abs(a - b).sum(others, np.float64), np.abs(b).sum(others, np.float64)
        np.testing.assert_allclose(channels.totals, expected, rtol=1e-5)


def test_a_tensor_of_several_parts(vectors):
    rng = np.random.default_rng(3)
    a = rng.standard_normal(2 * PART + CHUNK + 5).astype(np.float32)
    kernels, numpys = both_ways(a, a * np.float32(1.01))
    assert kernels == numpys


@pytest.mark.parametrize("transposed", [False, True])
def test_any_number_of_threads(transposed, monkeypatch):
    small_parts(monkeypatch)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((1100, 1300)).astype(np.float32) for _ in range(2))
    a, b = Values(a), Values(np.asfortranarray(b) if transposed else b)
    assert len(list(tiles.parts(a.array, b.array))) > 8, "enough to share out"
    one, *others = (bits(pair_sums(a, b, threads=threads)) for threads in (1, 2, 5))
    assert others == [one, one] and one == bits(by_numpy(a, b))


@unix_only
def test_no_page_is_mapped_to_read_values(tmp_path, monkeypatch):
    small_parts(monkeypatch)
    a = np.random.default_rng(5).standard_normal(32 * CHUNK).astype(np.float32)
    a.tofile(tmp_path / "a")
    held = Values(view(map_file(tmp_path / "a"), a.dtype, a.size, 0))
    assert pair_sums(held, Values(a)).dd == 0
    assert resident(tmp_path / "a") <= 64
    probe_all([held])
    assert resident(tmp_path / "a") <= 64


def mapped(path, array):
    """Values in a mapped file, behind three other bytes."""
    path.write_bytes(b"odd" + array.tobytes())
    return view(map_file(path), array.dtype, array.size, 3)


@pytest.mark.parametrize("dtype", STORED)
def test_mapped_files_are_read_and_not_mapped(tmp_path, monkeypatch, dtype):
    small_parts(monkeypatch)
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-9, 99, 9 * CHUNK + 77).astype(np.int8).astype(dtype) for _ in range(2))
    quant = Quant(np.dtype(dtype), 0.1, 3, exact=True) if np.dtype(dtype).kind in "iu" else None
    sides = [values_of(Tensor.of("x", array, quant=quant)) for array in (a, b)]
    held = [side.of(mapped(tmp_path / name, array)) for name, side, array in zip("ab", sides, (a, b))]
    assert bits(pair_sums(*held, threads=2)) == bits(by_numpy(*sides))
    assert bits(pair_sums(held[0], sides[1])) == bits(by_numpy(*sides))
    if kernel is not None and hasattr(os, "pread"):
        assert resident(tmp_path / "a") + resident(tmp_path / "b") <= 8


@compiled_only
@pytest.mark.parametrize("size", [100, CHUNK, 9 * CHUNK + 77])
def test_values_are_picked_up_on_the_way(tmp_path, monkeypatch, size):
    small_parts(monkeypatch)
    a, b = (np.random.default_rng(seed).standard_normal(size).astype(np.float32) for seed in (7, 8))
    for places in (np.sort(np.random.default_rng(9).choice(size, 60)), np.array([0, 0, size - 1]), np.arange(0)):
        picked = Picked((size,), places), Picked((size,), places[1::2].copy())
        pair_sums(Values(mapped(tmp_path / "a", a)), Values(b), threads=2, picked=picked)
        for one, array in zip(picked, (a, b)):
            assert one.whole
            np.testing.assert_array_equal(one.values, array[one.places])


def test_nothing_is_picked_up_of_turned_values():
    a = np.ones((20, 30), np.float32)
    picked = Picked((30, 20), np.arange(5)), Picked((30, 20), np.arange(5))
    pair_sums(Values(a.T), Values(np.ones((30, 20), np.float32)), picked=picked)
    assert not any(one.whole for one in picked)


@unix_only  # Windows puts no file in the place of a mapped one
def test_a_file_that_took_the_place_of_the_mapped_one_is_not_read(tmp_path):
    a = np.random.default_rng(10).standard_normal(3 * CHUNK).astype(np.float32)
    held = mapped(tmp_path / "a", a)
    (tmp_path / "b").write_bytes(b"odd" + bytes(a.nbytes))
    (tmp_path / "b").replace(tmp_path / "a")
    for _ in range(2):
        with pytest.raises(FileChanged):
            pair_sums(Values(held), Values(a))
        (tmp_path / "a").unlink(missing_ok=True)


@compiled_only
@pytest.mark.skipif(not hasattr(os, "pread"), reason="mapped files are not read here")
def test_a_file_that_is_cut_off_meanwhile_is_an_error(tmp_path, monkeypatch):
    a = np.random.default_rng(11).standard_normal(3 * CHUNK).astype(np.float32)
    held = mapped(tmp_path / "a", a)
    opened = summation.opened

    def opened_and_cut(array):
        file = opened(array)
        os.truncate(tmp_path / "a", 1000)
        return file

    monkeypatch.setattr(summation, "opened", opened_and_cut)
    with pytest.raises(FileChanged):
        pair_sums(Values(held), Values(a))


@compiled_only
def test_genuine_dumps(shared):
    """Every metric of every layer, of all dumps of the vendor's small network."""
    paths = sorted((shared / "sigmastar/dumps").glob("*/sigma_outtensor_dump.bin"))
    benchmark = open_dump(shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin")
    assert len(paths) >= 20
    for path in paths:
        rows = [compare(open_dump(path), benchmark, metrics=list(METRICS), match_by_value=True).rows]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(summation, "_KERNEL", None)
            rows.append(compare(open_dump(path), benchmark, metrics=list(METRICS), match_by_value=True).rows)
        kernels, numpys = ([(repr(row), repr(row.sums)) for row in each] for each in rows)
        assert kernels == numpys


@given(PAIRS)
def test_the_sums_are_right(pair):
    """Against exact arithmetic, whichever way is in use: every float32 is a multiple of 2**-149."""
    a, b = (np.where(np.isfinite(side), side, 0).astype(np.float32) for side in pair)
    sums = pair_sums(Values(a), Values(b))
    x, y = ([int(math.ldexp(float(value), 149)) for value in side] for side in (a, b))
    exact = {
        "aa": [p * p for p in x],
        "bb": [q * q for q in y],
        "ab": [p * q for p, q in zip(x, y)],
        "dd": [(p - q) ** 2 for p, q in zip(x, y)],
        "d1": [abs(p - q) << 149 for p, q in zip(x, y)],
        "b1": [abs(q) << 149 for q in y],
    }
    for name, terms in exact.items():
        size = Fraction(sum(map(abs, terms)), 1 << 298)
        assert abs(Fraction(getattr(sums, name)) - Fraction(sum(terms), 1 << 298)) <= size * Fraction(1, 10**13)


@compiled_only
def test_the_stub_names_what_is_there():
    stub = Path(summation.__file__).with_name("kernel.pyi").read_text()
    names = set(re.findall(r"^(?:def )?(\w+)(?:: int|\()", stub, re.MULTILINE))
    assert names == {name for name in vars(kernel) if not name.startswith("_")}


@compiled_only
def test_a_tile_that_is_no_chunk_is_refused():
    side = (0, 0, 4, 4, 1.0, 0, -1, 0, 0, 0, 0, 0)
    for tile in ((0, 1), (1, 0), (2, CHUNK), (1 << 40, 1 << 40)):
        with pytest.raises(ValueError, match="tile"):
            kernel.sums([[(side, side, (0, 0, *tile), (0, 0, 1, 0, 0))]], 0)


def test_the_kernel_can_be_left_out():
    code = "from sgsdump.comparison.sums.summation import description; print(description())"
    environment = {**os.environ, "SGSDUMP_NO_KERNEL": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "numpy sums\n"
