"""NHWC against NCHW both ways, shapes unknown, cubes, and what does not fit."""

import numpy as np
import pytest

from sgsdump.comparison.layout_match import measure, without_overallocation
from sgsdump.errors import ValuesError
from sgsdump.tensors.tensor import Values
from sgsdump.tensors.types import to_nchw, to_nhwc

RNG = np.random.default_rng(1)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def equal(a: np.ndarray, b: np.ndarray) -> str:
    """Asserts that the pair is found equal; gives the note."""
    found = measure(Values(a), Values(b))
    assert found.sums.dd == 0
    return found.note


def test_as_is_says_nothing():
    a = noise(1, 4, 5, 6)
    assert equal(a, a.copy()) == ""


@pytest.mark.parametrize("shape", [(1, 4, 5, 6), (2, 7, 7, 3), (1, 64, 48, 40)])
def test_transposed_both_ways(shape):
    a = noise(*shape)
    assert "NHWC to NCHW" in equal(np.ascontiguousarray(to_nchw(a)), a)
    assert "NCHW to NHWC" in equal(np.ascontiguousarray(to_nhwc(a)), a)


def test_one_pixel_or_one_channel_is_not_called_transposed():
    a = noise(1, 1, 1, 24)
    assert equal(a.reshape(1, 24, 1, 1), a) == ""
    b = noise(1, 5, 6, 1)
    assert equal(b.reshape(1, 1, 5, 6), b) == ""


def test_unknown_shape_is_compared_flat_and_turned_when_that_is_better():
    a = noise(1, 4, 5, 6)
    assert equal(a.reshape(-1), a) == ""
    assert "benchmark transposed NHWC to NCHW" in equal(to_nchw(a).reshape(-1), a)
    assert "benchmark transposed NCHW to NHWC" in equal(to_nhwc(a).reshape(-1), a)
    assert "sample transposed" in equal(a, to_nchw(a).reshape(-1))
    assert equal(a.reshape(-1), a.reshape(1, 2, 2, 5, 6)) == ""


def test_cube_is_turned_only_when_better():
    a = noise(1, 6, 6, 6)
    assert "COS" in equal(np.ascontiguousarray(to_nchw(a)), a)
    other = noise(1, 6, 6, 6)
    sums = measure(Values(a), Values(other)).sums
    assert sums.count == 216  # no better either way: whichever is kept, its sums are of one orientation
    candidates = [np.sum((a.astype(float) - turn(other)) ** 2) for turn in (lambda x: x, to_nchw, to_nhwc)]
    assert any(sums.dd == pytest.approx(each) for each in candidates)


def test_shapes_that_differ_by_ones_are_flat():
    a = noise(1, 1, 1, 24)
    assert equal(a.reshape(1, 24), a) == "compared flat"
    assert equal(a, a.reshape(1, 24)) == "compared flat"
    assert equal(a.reshape(4, 6), a.reshape(1, 4, 6)) == "compared flat"


@pytest.mark.parametrize("shape", [(1, 5, 4, 6), (2, 2, 5, 6)])
def test_other_shapes_of_equal_size_are_refused(shape):
    with pytest.raises(ValuesError, match=r"shapes differ.*\[1, 4, 5, 6\]"):
        measure(Values(noise(1, 4, 5, 6)), Values(noise(*shape)))


def test_sizes_that_differ_are_refused_with_both_shapes():
    with pytest.raises(ValuesError, match=r"15 values \[1, 15\].*16 values \[1, 16\]"):
        measure(Values(noise(1, 15)), Values(noise(1, 16)))


def test_pictures_of_four_values_a_pixel_are_cropped():
    a, b = noise(16), noise(1, 2, 2, 3)
    x, y, note = without_overallocation(Values(a), Values(b))
    assert x.array.shape == y.array.shape == (1, 2, 2, 3) and "12 of 16" in note
    assert without_overallocation(Values(noise(15)), Values(b))[2] == ""


def cube(cos: float) -> np.ndarray:
    """A cube whose COS with its NCHW view is ``cos``, as near as float64 has it."""
    a = RNG.standard_normal((1, 6, 6, 6))
    # as much of a constant, which no turning changes, as gives that COS: Σ(a+c)(t+c) = cos Σ(a+c)²
    total, square, own = a.sum(), (a * to_nchw(a)).sum(), (a * a).sum()
    return a + max(np.roots([(1 - cos) * a.size, 2 * (1 - cos) * total, square - cos * own]).real)


@pytest.mark.parametrize(("cos", "retried"), [(0.5, True), (0.9799, True), (0.9801, False)])
def test_the_other_layout_is_tried_below_a_cos_of_098(cos, retried):
    a = cube(cos)
    turned = np.ascontiguousarray(to_nchw(a))
    as_it_lies = (a * turned).sum() / (a * a).sum()
    assert as_it_lies == pytest.approx(cos, abs=1e-9)
    found = measure(Values(turned), Values(a))
    assert (found.note != "") == retried == (found.sums.dd == 0)


@pytest.mark.parametrize(
    ("sample", "benchmark", "kept"), [(16, 12, 12), (12, 16, 12), (15, 12, None), (17, 12, None), (12, 12, None)]
)
def test_only_four_values_for_three_are_an_over_allocation(sample, benchmark, kept):
    a, b, note = without_overallocation(Values(np.arange(sample)), Values(np.arange(benchmark)))
    assert (a.array.size, b.array.size) == ((sample, benchmark) if kept is None else (kept, kept))
    assert bool(note) == (kept is not None) and (kept is None or note.startswith("the first 12 of 16 values"))


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_stream_of_four_values_a_pixel(planar, swapped):
    picture = noise(1, 4, 6, 3)
    stream = np.concatenate([picture, np.zeros((1, 4, 6, 1), np.float32)], axis=3)
    benchmark = np.ascontiguousarray(to_nchw(picture)) if planar else picture
    pair = (Values(benchmark), Values(stream)) if swapped else (Values(stream), Values(benchmark))
    a, b, note = without_overallocation(*pair)
    np.testing.assert_array_equal(a.array, b.array)
    assert a.array.size == picture.size and note == "only R, G and B of pixels stored as R, G, B, 0"


def test_a_dump_that_holds_three_quarters_of_such_a_stream():
    picture = noise(1, 4, 8, 3)
    stream = np.concatenate([picture, np.full((1, 4, 8, 1), -0.5, np.float32)], axis=3).reshape(-1)
    stream[picture.size :] = -0.5
    a, b, note = without_overallocation(Values(stream), Values(picture))
    np.testing.assert_array_equal(a.array, picture.reshape(-1)[: 24 * 3])
    np.testing.assert_array_equal(b.array, a.array)
    assert note.startswith("only R, G and B of the first 24 pixels,")


NHWC = noise(2, 4, 5, 3)


NCHW = np.ascontiguousarray(NHWC.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("sample", "benchmark"),
    [(NCHW, NHWC), (NCHW.reshape(-1), NHWC), (NCHW, NHWC.reshape(-1))],
    ids=["both shaped", "sample flat", "benchmark flat"],
)
def test_known_layouts_decide_though_one_side_is_flat(sample, benchmark):
    measured = measure(Values(sample), Values(benchmark), layouts=("NCHW", "NHWC"))
    assert measured.sums.dd == 0 and measured.note == "benchmark transposed NHWC to NCHW"
    assert measured.sample.array.shape == measured.benchmark.array.shape == NCHW.shape


def test_known_layouts_of_other_letters_shapes_or_none_do_not_decide():
    for layouts in ((None, "NHWC"), ("NCHW", None), ("NCHW", "NCDHW"), ("ND", "NHWC")):
        assert "NHWC to NCHW" in measure(Values(NCHW), Values(NHWC), layouts=layouts).note
    flat = measure(Values(NCHW.reshape(-1)), Values(NCHW.reshape(-1)), layouts=("NCHW", "NHWC"))
    assert flat.sums.dd == 0 and flat.note == ""
    assert measure(Values(NHWC), Values(NHWC), layouts=("NHWC", "NHWC")).note == ""


@pytest.mark.parametrize("layouts", [(None, None), ("NCHW", "NHWC"), ("NHWC", "NHWC")])
@pytest.mark.parametrize("other", [NHWC[:1], NHWC[:, :2], NHWC[:1].reshape(-1)])
def test_other_sizes_are_refused_whatever_the_layouts(layouts, other):
    for pair in ((NHWC, other), (other, NHWC)):
        with pytest.raises(ValuesError, match="sizes differ"):
            measure(*map(Values, pair), layouts=layouts)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [((12, 12), 12), ((16, 12), 12), ((12, 16), 12), ((17, 12), None), ((15, 12), None), ((9, 12), 9)],
)
def test_four_values_for_a_pixel_s_three(sizes, kept):
    a, b = (np.arange(size, dtype=np.float32) for size in sizes)
    x, y, note = without_overallocation(Values(a), Values(b))
    assert (x.array.size, y.array.size) == ((kept, kept) if kept else sizes)
    assert note.startswith(f"the first {kept} of {max(sizes)} values") is (kept is not None and sizes[0] != sizes[1])
