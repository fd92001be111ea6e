"""What users type behind the pipeline's options, and what is said when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgsdump.errors import ConfigError
from sgsdump.pipeline.job import input_files, position, ranges, shapes


def test_shapes() -> None:
    assert shapes(["x=1x3x224x224", "a=b=2,4", "input:0=7", "e=0x3"]) == {
        "x": (1, 3, 224, 224),
        "a=b": (2, 4),
        "input:0": (7,),
        "e": (0, 3),
    }


@pytest.mark.parametrize("word", ["x", "x=", "=1x2", "x=1xx2", "x=-1x3", "x=1x3.5", "x=axb"])
def test_a_malformed_shape_is_one_line(word: str) -> None:
    with pytest.raises(ConfigError, match="NAME=SIZExSIZE"):
        shapes([word])


def test_a_shape_given_twice() -> None:
    with pytest.raises(ConfigError, match="'x' twice"):
        shapes(["x=1", "x=2"])


def test_input_files_with_colons_and_commas_in_their_names() -> None:
    names = ["x", "x:0", "y"]
    assert input_files("x:a.npy,y:b.npy", names) == {"x": Path("a.npy"), "y": Path("b.npy")}
    assert input_files("x:0:a.npy", names) == {"x:0": Path("a.npy")}
    assert input_files("x:a,b.npy,y:c.npy", names) == {"x": Path("a,b.npy"), "y": Path("c.npy")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.npy", "NAME:FILE.npy"),
        ("eager:a.npy", "no input 'eager'; did you mean 'eager_0'"),
        ("eager_0:a.npy,other:b.npy", "no input 'other'"),
        ("eager_0:a.npy,eager_0:b.npy", "twice"),
        ("eager_0:", "write a file name after eager_0:"),
    ],
)
def test_bad_input_files(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        input_files(text, ["eager_0"])


def test_a_named_range_goes_before_one_for_all() -> None:
    assert ranges([["x", "-1", "1"], ["0", "255"]], ["x", "y"]) == {
        "x": {"low": -1, "high": 1},
        "y": {"low": 0, "high": 255},
    }
    assert ranges([], ["x"]) == {}


def test_several_ranges_in_a_row() -> None:
    x, y = {"low": 0, "high": 1}, {"low": -1, "high": 255}
    assert ranges([["x", "0", "1", "y", "-1", "255"]], ["x", "y"]) == {"x": x, "y": y}
    assert ranges([["-1", "255", "x", "0", "1"]], ["x", "y"]) == {"x": x, "y": y}
    assert ranges([["x", "0", "1"], ["y", "-1", "255"]], ["x", "y"]) == {"x": x, "y": y}
    # names of digits, which torch's older exporter gives, are names where they are an input's
    assert ranges([["0", "0", "1", "1", "-1", "255"]], ["0", "1"]) == {"0": x, "1": y}
    for words in (["x", "0", "1", "y", "-1"], ["x", "0", "1", "z", "0", "1"], ["0", "1", "0", "1", "2"]):
        with pytest.raises(ConfigError, match="--range"):
            ranges([words], ["x", "y"])


@pytest.mark.parametrize("group", [["1"], ["1", "0"], ["x", "a", "2"], ["0", "nan"], ["x", "1", "2", "3"]])
def test_bad_ranges(group: list[str]) -> None:
    with pytest.raises(ConfigError, match="LOW HIGH"):
        ranges([group], ["x"])
    with pytest.raises(ConfigError, match="no input 'z'"):
        ranges([["z", "0", "1"]], ["x"])


def test_places() -> None:
    assert position(None, None, "the start") is None
    assert position("12", None, "the start") == 12
    assert position("-3", None, "the start") == -3
    assert position("0", None, "the start") == 0
    assert position("conv1", None, "the start") == "conv1"
    assert position(None, "12", "the start") == "12"
    with pytest.raises(ConfigError, match="as index and as name"):
        position("1", "conv1", "the start")
