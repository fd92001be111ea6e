"""What the names of operator dump files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgsdump.dumps.formats.ascend.file_names import FileName, parse, read_mapping


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Conv2D.conv1.4.2.1700000000123456", FileName("Conv2D", "conv1", 4, 2, 1700000000123456, "")),
        ("Conv2D.conv1.4.1700000000123456", FileName("Conv2D", "conv1", 4, None, 1700000000123456, "")),
        ("Relu.r.2.9.1700000000700001.4.7.1.0", FileName("Relu", "r", 2, 9, 1700000000700001, "7.1")),
        ("ConcatV2D.concatv2.0.0.550288648", FileName("ConcatV2D", "concatv2", 0, 0, 550288648, "")),
        ("Add.a.3.20240102030405678", FileName("Add", "a", 3, None, 20240102030405678, "")),
        ("Add.a.b.5.3.2.1700000000123456", FileName("Add", "a.b.5", 3, 2, 1700000000123456, "")),
        ("Add.a.3.2.1700000000123456.output.0.npy", None),
        ("Add.a.1700000000123456", None),
        ("conv1_relu.0.1700000000000000.npy", None),
        ("a/b.c.1.2.1700000000123456", None),
        ("1." * 3000, None),
    ],
)
def test_names(name: str, parts: FileName | None) -> None:
    assert parse(name) == parts


def test_the_mapping_takes_the_last_row_and_odd_lines(tmp_path: Path) -> None:
    assert read_mapping(tmp_path) == {}
    (tmp_path / "mapping.csv").write_bytes(b"1,Add.a.1.1.1700000000123456\r\n\r\nno comma\n1, Add.b,c \n\xff,\xfe\n")
    assert read_mapping(tmp_path) == {"1": "Add.b,c", "\udcff": "\udcfe"}
