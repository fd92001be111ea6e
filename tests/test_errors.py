import pickle

import pytest

from sgsdump import Dump
from sgsdump.errors import FormatError, SgsdumpError, ValuesError, one_line


@pytest.mark.parametrize("hostile", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\x00b"])
def test_a_message_is_one_line_whatever_is_named_in_it(hostile):
    text = str(FormatError(f"{hostile}: damaged"))
    assert len(text.splitlines()) == 1 and text.isprintable() and text.endswith("b: damaged")
    assert Dump([], notes=[hostile]).notes == (one_line(hostile),)


def test_plain_text_stays_as_it_is():
    text = "Größe/*?#: 1.5 … \udcff" + "x" * 1000
    assert str(SgsdumpError(text)) == text == one_line(text)


@pytest.mark.parametrize("name", ["x", "x\0"])
def test_a_message_is_not_longer_than_a_screen(name):
    text = str(SgsdumpError("begin x" + name * 100_000 + "x end"))
    assert text.startswith("begin x") and text.endswith("x end") and len(text) < 2000


def test_errors_come_back_whole_from_another_process():
    error = pickle.loads(pickle.dumps(FormatError("a\nb" + "x" * 5000)))
    assert error.args == ("a\nb" + "x" * 5000,) and str(error).startswith("a\\nb")


def test_the_reason_leaves_out_the_name_of_its_own_tensor_alone() -> None:
    error = pickle.loads(pickle.dumps(ValuesError("has no values", tensor="x")))
    assert (str(error), error.tensor) == ("tensor 'x' has no values", "x")
    assert error.reason_of("y", "x") == "has no values"
    assert error.reason_of("y") == FormatError("tensor 'x' has no values").reason_of("x") == "tensor 'x' has no values"
