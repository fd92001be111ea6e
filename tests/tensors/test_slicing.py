"""The texts that show a part of a tensor or another order of its axes, against numpy's own indexing."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump.errors import ConfigError
from sgsdump.tensors.slicing import parse, viewed

ARRAY = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ARRAY),
        (" ; ", ARRAY),
        ("[1]", ARRAY[1]),
        ("[ 1 ]", ARRAY[1]),
        ("[-1]", ARRAY[-1]),
        ("[+1]", ARRAY[1]),
        ("[12]", np.arange(24).reshape(2, 3, 4).reshape(24)[12]),
        ("[0, 2, 3]", ARRAY[0, 2, 3]),
        ("[:]", ARRAY),
        ("[1:]", ARRAY[1:]),
        ("[:1]", ARRAY[:1]),
        ("[0:2,1]", ARRAY[0:2, 1]),
        ("[:, 0:3:2]", ARRAY[:, 0:3:2]),
        ("[:,::-1]", ARRAY[:, ::-1]),
        ("[:,2:0:-1]", ARRAY[:, 2:0:-1]),
        ("[:,::1]", ARRAY),
        ("[...,3]", ARRAY[..., 3]),
        ("[...]", ARRAY),
        ("[]", ARRAY),
        ("(2,0,1)", ARRAY.transpose(2, 0, 1)),
        ("( 1 , 0 , 2 )", ARRAY.transpose(1, 0, 2)),
        ("(2,0,1,)", ARRAY.transpose(2, 0, 1)),
        ("(2,0,1);[3]", ARRAY.transpose(2, 0, 1)[3]),
        ("[1]; (1,0) ;[0]", ARRAY[1].T[0]),
    ],
)
def test_what_numpy_would_give(text, expected):
    array = ARRAY.reshape(24) if text == "[12]" else ARRAY
    shown = viewed(array, text)
    assert isinstance(shown, np.ndarray) and shown.shape == np.shape(expected)
    np.testing.assert_array_equal(shown, expected)


def test_operations_are_counted_and_make_views():
    assert len(parse("[1];(1,0)")) == 2 and parse(" ") == []
    assert np.shares_memory(viewed(ARRAY, "[1];(1,0)"), ARRAY)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x",
            "[1",
            "1]",
            "(0,1,2",
            "0,1,2)",
            "[1)",
            "(0,1,2]",
            "[a]",
            "[1;2]",
            "(a,b,c)",
            "(0:1,2)",
            "[1.5]",
            "[1e3]",
        ),
        *("[::0]", "[1:2:3:4]", "[1:a]", "[a:1]", "[1,,2]", "[1234567890123456789]", "[--1]", "[..]", "(...)"),
    ],
)
def test_a_text_that_says_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="cannot parse") as caught:
        parse(text)
    assert "write [0:2,3] for a slice" in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_is_cut_at_60_characters():
    more = ",1" * 40
    for text in (f"[1{more}", f"[1,x{more}]", f"(0,1,2,3{more})", f"[9{more}]"):
        with pytest.raises(ConfigError) as caught:
            viewed(ARRAY, text)
        assert text[:60] in str(caught.value) and text[:61] not in str(caught.value)
    with pytest.raises(ConfigError, match=r"cannot parse 'x{40}' in"):
        parse("[" + "x" * 41 + "]")


def test_the_longest_number_has_eighteen_digits():
    assert len(parse("[" + "9" * 18 + "]")) == 1


@pytest.mark.parametrize("text", ["[2]", "[0,3]", "[0,0,0,0]", "[-3]", "[...,...]"])
def test_a_part_that_does_not_fit_names_the_shape(text):
    with pytest.raises(ConfigError, match=r"does not fit a tensor of shape \[2, 3, 4\]"):
        viewed(ARRAY, text)


@pytest.mark.parametrize("text", ["()", "(0,1)", "(0,1,1)", "(0,1,3)", "(1,2,3)", "(0,1,2,3)", "(0,1,-1)"])
def test_an_order_names_every_axis_once(text):
    with pytest.raises(ConfigError, match=r"not a permutation of the axes of a tensor of shape \[2, 3, 4\]"):
        viewed(ARRAY, text)


def test_a_scalar_has_the_empty_order():
    assert viewed(np.array(5), "()").tolist() == 5 == viewed(np.array(5), "[]").tolist()
