"""Pickles are data: what they name is neither looked up nor called, and they change nothing of ours."""

from __future__ import annotations

import io
import pickle
import tracemalloc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from sgsdump.errors import FormatError
from sgsdump.files import pickles
from sgsdump.files.pickles import Global, Object, load, refused


def refuse(what: Global, arguments: tuple[Any, ...]) -> Any:
    raise refused(what)


def read(data: bytes, call: Any = refuse) -> Any:
    return load(io.BytesIO(data), "x", call, lambda reference: ("referred", reference))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol: int) -> None:
    data = [
        None,
        True,
        -(2**70),
        1.5,
        "ü\n",
        b"\0",
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 3, 4),
        {"a": [1], 2: {}, (1, "b"): 3},
    ]
    shared = ["shared"]

    def call(what: Global, arguments: tuple[Any, ...]) -> Any:
        assert str(what) == "_codecs.encode" or not arguments
        return arguments[0].encode(arguments[1]) if arguments else b""

    found = read(pickle.dumps([*data, shared, shared], protocol), call)
    assert found[:-2] == data and found[-1] is found[-2] and found[-1] == shared


def test_names_and_objects_stay_what_the_file_says() -> None:
    found = read(b"\x80\2cos\nsystem\n.")
    assert found == Global("os", "system")
    made = read(pickle.dumps(range(1, 7, 2), 2), lambda what, arguments: Object(what, arguments))
    assert isinstance(made, Object) and str(made.of).endswith("range") and made.arguments == (1, 7, 2)
    state = read(b"\x80\2cno.such\nthing\n)\x81}X\1\0\0\0aK\1sb.")
    assert state.of == Global("no.such", "thing") and state.state == {"a": 1}


def test_calls_are_the_callers() -> None:
    with pytest.raises(FormatError, match=r"x: refused: the file calls .posix\.system."):
        read(b"\x80\2cposix\nsystem\n(X\2\0\0\0lstR.")
    assert read(pickle.dumps(OrderedDict(a=1), 2), lambda what, arguments: {}) == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"\x80\2",
        b"\x80\2K\1",
        b"(.",
        b"t.",
        b"a.",
        b"K\1K\2a.",
        b"}K\1s.",
        b"]K\1K\2s.",
        b"h\7.",
        b"\x82\1.",
        b"R.",
    ],
)
def test_damage_is_one_line(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read(data)
    assert str(caught.value).startswith("x: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("function", ["c_codecs\nencode\n", "cnumpy.core.multiarray\nscalar\n"])
@pytest.mark.parametrize("state", [b"(N}X\x0c\0\0\0__defaults__)st", b"}X\1\0\0\0aK\1s"])
def test_a_pickle_changes_no_function_of_ours(function: str, state: bytes) -> None:
    with pytest.raises(FormatError, match="modifies a class or a function"):
        pickles.loads(b"\x80\2" + function.encode() + state + b"b.", "x")
    array = np.arange(3)
    assert np.array_equal(pickles.loads(pickle.dumps({"a": array}, 2), "x")["a"].array, array)


def test_a_memo_index_reserves_no_memory_below_it() -> None:
    tracemalloc.start()
    (outer,) = pickles.loads(b"\x80\3]r\xff\xff\xff\x7f]j\xff\xff\xff\x7faa.", "x")
    assert outer[0][0] is outer
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "u1", "?", "<f8"])
def test_arrays_and_scalars_of_every_protocol(protocol: int, dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    held = {"rows": array, "columns": np.asfortranarray(array), "one": array[1, 1], "again": [array, {"x": None}]}
    loaded = pickles.loads(pickle.dumps(OrderedDict(held), protocol), "x")
    assert isinstance(loaded, OrderedDict) and loaded["one"] == array[1, 1]
    for name in ("rows", "columns"):
        np.testing.assert_array_equal(loaded[name].array, array, strict=True)
        assert loaded[name].array.dtype == array.dtype and not loaded[name].array.flags.writeable
    assert loaded["again"][0] is loaded["rows"]


def test_other_names_are_refused_before_they_are_called() -> None:
    with pytest.raises(FormatError, match=r"^x: refused: the pickle refers to os\.system, which is not plain data$"):
        pickles.loads(b"\x80\2cos\nsystem\n.", "x")
    with pytest.raises(FormatError, match=r"^x: refused: the pickle refers to os\.system"):
        pickles.loads(b"(X\2\0\0\0lsios\nsystem\n.", "x")
    with pytest.raises(FormatError, match="refers to objects outside itself"):
        pickles.loads(b"\x80\2K\1Q.", "x")
