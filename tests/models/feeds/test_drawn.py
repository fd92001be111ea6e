"""Random inputs as the SDAA tool draws them, and the five ways of giving inputs."""

import numpy as np
import pytest

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, facts_of
from sgsdump.errors import ConfigError, FormatError, InputError
from sgsdump.models.feeds.drawn import (
    InputDefaults,
    InputSource,
    array_of,
    checked_ranges,
    from_folder,
    from_json,
    give,
)
from sgsdump.models.model import InputSpec


def spec(name="x", shape=(2, 3), dtype="float32") -> InputSpec:
    return InputSpec(name, tuple(shape), np.dtype(dtype))


def arrays(*specs, source=None, **more):
    return {name: each.array for name, each in give(specs, source or InputSource(), **more).items()}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_drawn_in_double_and_cast(dtype):
    found = arrays(spec(dtype=dtype))["x"]
    expected = np.random.default_rng(42).uniform(0.0, 1.0, (2, 3)).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_the_values_are_those_of_numpys_seed_42():
    """Written down once, so that nobody moves them: default_rng(42).uniform(0, 1)."""
    np.testing.assert_allclose(arrays(spec(dtype="float64", shape=(2,)))["x"], [0.7739560485559633, 0.4388784397520523])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint16"])
def test_integers_have_their_own_dtype_and_high_is_included(dtype):
    found = arrays(spec(shape=(2000,), dtype=dtype))["x"]
    expected = np.random.default_rng(42).integers(0, 100, (2000,), dtype=dtype, endpoint=True)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype and found.min() == 0 and found.max() == 100


def test_booleans_are_drawn_as_0_and_1():
    found = arrays(spec(shape=(50,), dtype="bool"))["x"]
    assert found.dtype == bool and 0 < found.sum() < 50
    np.testing.assert_array_equal(found, np.random.default_rng(42).integers(0, 1, 50, endpoint=True) == 1)


def test_one_seed_for_all_inputs():
    found = arrays(spec("a"), spec("b"))
    np.testing.assert_array_equal(found["a"], found["b"])


def test_defaults_can_be_set():
    given = InputDefaults(seed=7, float_min=-2, float_max=-1, int_min=5, int_max=6)
    found = arrays(spec("f"), spec("i", dtype="int32"), defaults=given)
    np.testing.assert_array_equal(found["f"], np.random.default_rng(7).uniform(-2, -1, (2, 3)).astype(np.float32))
    assert set(found["i"].reshape(-1)) <= {5, 6}


def test_a_range_and_an_array_belong_to_their_input_alone():
    """What one input was told does not reach the next, in either order."""
    array = np.full((2, 3), 9, np.float32)
    source = InputSource(checked_ranges({"b": {"seed": 1, "high": 0.5}, "d": {"low": 0.5}}), {"a": array})
    given = give([spec(name) for name in "abcd"], source)
    assert given["a"].use_external and given["a"].seed is None and given["a"].array is array
    assert [(given[n].seed, given[n].low, given[n].high) for n in "bcd"] == [(1, 0, 0.5), (42, 0, 1), (42, 0.5, 1)]
    assert not any(given[name].use_external for name in "bcd")
    np.testing.assert_array_equal(given["c"].array, arrays(spec())["x"])


def test_open_sizes():
    free = spec(shape=(None, 3, None))
    with pytest.raises(InputError, match=r"no fixed shape \(\[\?, 3, \?\]\).*--shape x=1x3x1"):
        arrays(free)
    assert arrays(free, shapes={"x": (2, 3, 4)})["x"].shape == (2, 3, 4)
    assert arrays(spec(shape=(None, 3)))["x"].shape == (1, 3)
    for wrong in ((2, 4, 4), (2, 3), (2, 3, -1)):
        with pytest.raises(InputError, match="does not fit the input 'x'"):
            arrays(free, shapes={"x": wrong})


def dumped(folder, *entries: InputEntry):
    folder.mkdir(exist_ok=True)
    dump_info.write(DumpInfo({}, entries), folder)
    return folder


def test_inputs_of_an_earlier_run(tmp_path):
    shape = facts_of(np.zeros((4, 3), np.float32))
    folder = dumped(tmp_path / "d", InputEntry("x", shape, 5, -1.0, 1.0), InputEntry("other", None, 1, 0, 1))
    found = arrays(spec(shape=(None, 3)), source=from_json(folder / "dump_info.json", ["x"]))["x"]
    np.testing.assert_array_equal(found, np.random.default_rng(5).uniform(-1, 1, (4, 3)).astype(np.float32))


def test_an_earlier_run_that_says_nothing_is_an_error(tmp_path):
    folder = dumped(tmp_path / "d", InputEntry("x1", None, use_external=True))
    with pytest.raises(InputError, match="lacks the input 'x2'; choose one of: x1"):
        from_json(folder, ["x2"])
    with pytest.raises(InputError, match=r"given as an array.*use the arrays in .*inputs"):
        from_json(folder / "dump_info.json", ["x1"])
    with pytest.raises(FormatError, match="no such file"):
        from_json(tmp_path / "none.json", ["x"])


def test_arrays_from_a_folder(tmp_path):
    (tmp_path / "deep" / "a").mkdir(parents=True)
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "xy.npy", np.ones(1))
    np.save(tmp_path / "deep" / "%2Fm%2Fin.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "deep" / "x.npy", np.ones(7))
    np.save(tmp_path / "deep" / "a" / "b.npy", np.ones(2))
    found = from_folder(tmp_path, ["x", "/m/in"]).arrays
    assert found["x"].shape == (2, 3) and not found["x"].any() and found["/m/in"].all()
    assert from_folder(tmp_path / "deep", ["a/b"]).arrays["a/b"].shape == (2,)
    with pytest.raises(InputError, match=r"has no file z\.npy for the input 'z'"):
        from_folder(tmp_path, ["x", "z"])
    with pytest.raises(InputError, match="no such folder"):
        from_folder(tmp_path / "nowhere", ["x"])


def test_two_files_that_could_be_it(tmp_path):
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        np.save(tmp_path / part / "x.npy", np.ones(1))
    with pytest.raises(InputError, match="both match the input 'x'"):
        from_folder(tmp_path, ["x"])


def test_files_that_are_no_arrays(tmp_path):
    with pytest.raises(InputError, match="no such input file"):
        array_of(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_bytes(b"hello")
    with pytest.raises(InputError, match="npy file of numbers"):
        array_of(tmp_path / "x.npy")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="npy file of numbers"):
        array_of(tmp_path / "o.npy")
    np.savez(tmp_path / "z.npz", a=np.ones(1))
    with pytest.raises(InputError, match="several arrays"):
        array_of(tmp_path / "z.npz")


@pytest.mark.parametrize(
    "source, kind, text",
    [
        (
            InputSource(arrays={"x": np.zeros((3, 2), np.float32)}),
            InputError,
            r"expects float32 \[2, 3\], got float32 \[3",
        ),
        (InputSource(arrays={"x": np.zeros((2, 3))}), InputError, "got float64"),
        (InputSource(arrays={"xx": np.zeros((2, 3))}), ConfigError, "no input 'xx'"),
        (InputSource(checked_ranges({"y": {}})), ConfigError, "no input 'y'"),
        (InputSource(checked_ranges({"x": {"low": 2, "high": 1}})), ConfigError, "is 2 to 1; low must not exceed high"),
        (
            InputSource(checked_ranges({"x": {"low": float("nan")}})),
            ConfigError,
            "is nan to 1",
        ),
        (InputSource(checked_ranges({"x": {"seed": -1}})), ConfigError, "cannot be drawn"),
        (InputSource(checked_ranges({"x": {"high": float("inf")}})), ConfigError, "cannot be drawn"),
    ],
)
def test_what_cannot_be_is_one_line(source, kind, text):
    with pytest.raises(kind, match=text) as caught:
        give([spec()], source)
    assert "\n" not in str(caught.value)


def test_ranges_of_integers_fit_their_dtype():
    for entry in ({"high": 300}, {"low": 0.5}, {"low": -1}):
        with pytest.raises(ConfigError, match="cannot be drawn"):
            give([spec(dtype="uint8")], InputSource(checked_ranges({"x": entry})))


def test_a_range_has_no_other_keys():
    with pytest.raises(ConfigError, match="key 'hihg'"):
        checked_ranges({"x": {"hihg": 1}})


@pytest.mark.parametrize(
    "entry, text", [(5, "is 5, which is not a dictionary; write"), ({"low": "a"}, "the low 'a', which is not a number")]
)
def test_a_range_is_of_numbers(entry, text):
    with pytest.raises(ConfigError, match=text):
        checked_ranges({"x": entry})


def test_text_cannot_be_drawn():
    with pytest.raises(InputError, match="give an array"):
        give([InputSpec("x", (1,), np.dtype(object))], InputSource())
