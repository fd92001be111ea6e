"""The name map file: written and read back, and what it must not be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump.comparison.naming.name_files import read_name_map, write_name_map
from sgsdump.errors import FormatError

name = st.text() | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))


@settings(max_examples=40, deadline=None)
@given(names=st.dictionaries(name, name, max_size=5))
def test_round_trip(tmp_path_factory, names):
    names = {key: value for value, key in {value: key for key, value in names.items()}.items()}
    path = tmp_path_factory.mktemp("x") / "names.json"
    write_name_map(names, path)
    assert read_name_map(path) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("a b\n", "not valid JSON"),
        ("[]", "the file holds a list, but"),
        ('{"a": ["b"]}', "'a' must map to one name"),
        ('{"a": null}', "'a' must map to one name"),
        ('{"a": "b", "a": "c"}', "'a' occurs twice in one object"),
        ('{"a": "x", "b": "x"}', "map to 'x' of the sample: 'a' and 'b'"),
        ("[" * 100000, "not valid JSON"),
    ],
)
def test_anything_else_is_one_line(tmp_path, text, said):
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=said) as caught:
        read_name_map(path)
    assert "\n" not in str(caught.value)


def test_a_table_without_names_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text(";\n")
    with pytest.raises(FormatError, match="no row contains a name"):
        read_name_map(tmp_path / "x.csv")


def test_a_written_map_is_indented_by_one_and_ends_its_last_line(tmp_path):
    write_name_map({"b": "a", "ü": "\udcff"}, tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == '{\n "b": "a",\n "\\u00fc": "\\udcff"\n}\n'
    assert read_name_map(tmp_path / "m.json") == {"b": "a", "ü": "\udcff"}
