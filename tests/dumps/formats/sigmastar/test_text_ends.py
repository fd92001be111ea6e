"""A record of a text dump ends with one of two marks and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgsdump import open_dump
from sgsdump.errors import FormatError

RECORD = (
    b"//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n"
    b"//buffer data size: 4\n\n1.000000, \n"
)


@pytest.mark.parametrize("mark", [b"", b"}", b"} ", b"};", b"}a\n", b"}~\n", b"}\t\n", b"};;\n"])
def test_another_mark_is_no_end(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "whole.txt").write_bytes(RECORD + b"}\n")
    assert open_dump(tmp_path / "whole.txt")["x"].real().tolist() == [1.0]
    (tmp_path / "bad.txt").write_bytes(RECORD + b"}\n" + RECORD + mark)
    with pytest.raises(FormatError, match=r"bad\.txt: record 1 'x' at byte \d+ has no end"):
        open_dump(tmp_path / "bad.txt")
