"""The SDK's INI dialect: values, comments, lists that run on, and lines that are neither."""

import pytest

from sgsdump.errors import ConfigError
from sgsdump.sidecars import ini

KEYS = {"A": ["one", "two"], "B": ["three"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("one = x", "x"),
        ("one=x;", "x"),
        ("ONE = x ; a comment", "x"),
        ("one='x;y'; why", "x;y"),
        ('one = "x" ;', "x"),
        ("one = it's;", "its"),
        ("one = ;", ""),
        ("one =", ""),
        ("one = a,\n  b,\n\tc; d", "a,b,c"),
        ("one = a,\n\n  ; a comment\n# another\n  b;", "a,b"),
        ("one = a;\ntwo = b", "a"),
        ("one = a\n  two = b", "a"),  # a line with = is a key, indented or not
    ],
)
def test_values_of_an_ini(stored, text, value):
    sections = ini.read_sections(stored("[A] ; the first\n" + text + "\n"), KEYS)
    assert sections["A"]["one"].text == value
    assert sections["A"]["one"].where.endswith(":2: one")


def test_sections_are_kept_apart_and_values_are_lists(stored):
    path = stored(b"\xef\xbb\xbf# c\n[ A ]\none=a, b ,c\n[B] # d\nthree=1;\n")
    sections = ini.read_sections(path, KEYS)
    assert sections["A"]["one"].items() == ["a", "b", "c"] and sections["B"]["three"].text == "1"
    assert sections["B"]["three"].where == f"{path}:5: three"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[A]\none=a,\nb;\n", ":3: 'b;' is neither a .section. nor key = value"),  # not indented
        ("[A]\none=a;\n  b;\n", ":3: 'b;' is neither"),  # ended by its ;
        ("[A]\none=a,\n[B]\n  b;\n", ":4: 'b;' is neither"),
        ("[A]\none=a\nONE=b\n", ":3: the key one occurs twice in .A."),
        ("[A]\n[B]\n[A]\n", ":3: the section .A. occurs twice"),
        ("[A]\nthree=1\n", ":2: unknown key 'three' in .A."),
        ("x\n", ":1: 'x' is not in a section; begin with .A."),
        ("[A]\n[" + "C" * 90 + "]\n", r":2: unknown section \[C{80}\]"),
    ],
)
def test_lines_that_are_neither(stored, text, message):
    with pytest.raises(ConfigError, match=message):
        ini.read_sections(stored(text), KEYS)


def test_an_ini_of_a_mebibyte_is_the_largest(stored):
    text = b"[A]\n" + b";" * (2**20 - 5) + b"\n"
    assert len(text) == 2**20 and ini.read_sections(stored(text), KEYS) == {"A": {}}
    with pytest.raises(ConfigError):
        ini.read_sections(stored(text + b"\n"), KEYS)
