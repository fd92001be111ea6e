"""What a tensor_min_max file is, its first 4096 characters say."""

import pytest

from sgsdump.errors import FormatError
from sgsdump.sidecars.tensor_min_max import read_ranges


@pytest.mark.parametrize("spaces", [0, 1, 4090, 4095])
def test_space_before_the_json_is_passed_over(tmp_path, spaces):
    (tmp_path / "ranges").write_text(" " * spaces + '[{"name": "a", "min": [0], "max": [1]}]')
    assert [(name, each.low, each.high) for name, each in read_ranges(tmp_path / "ranges").items()] == [("a", 0, 1)]


def test_a_file_that_begins_with_nothing_but_space_is_none(tmp_path):
    (tmp_path / "ranges").write_text(" " * 4096 + "[]")
    with pytest.raises(FormatError, match="is not a tensor_min_max file"):
        read_ranges(tmp_path / "ranges")
