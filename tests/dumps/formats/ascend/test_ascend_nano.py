"""Nano devices' dumps: the genuine file against the vendor's arrays, and crafted ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.ascend.wire import nano_file, nano_item, tag
from dumps.formats.read_only import ReadOnly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgsdump import open_dump
from sgsdump.errors import FormatError
from sgsdump.tensors.device import Origin

NAME = "ConcatV2D.concatv2.0.0.550288648"
PAYLOAD = np.arange(6, dtype="<f4").tobytes() + b"\x01\x02\x03"
INPUT, OUTPUT = nano_item(True, 0, (2, 3), 24), nano_item(False, 2, (3,), 3, (1, 3))


class TestReadOnly(ReadOnly):
    format = "ascend_nano"
    file_name = NAME
    data = nano_file([INPUT], [OUTPUT], PAYLOAD)


def test_the_genuine_file_is_read_to_the_vendors_arrays(shared: Path) -> None:
    dump = open_dump(shared / "ascend/nano_dump" / NAME)
    assert dump.format == "ascend_nano" and not dump.notes
    names = ["input.0", "input.1", "output.0"]
    assert [r.name for r in dump.records] == [f"concatv2:{name.replace('.', ':')}" for name in names]
    for record, name in zip(dump.records, names):
        expected = np.load(shared / "ascend/nano_dump" / f"{NAME}.{name}.npy")
        stored = record.tensor.stored()
        assert (stored.dtype, stored.shape) == (expected.dtype, expected.shape) and np.array_equal(stored, expected)


def test_types_bear_acls_numbers(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(nano_file([INPUT], [OUTPUT], PAYLOAD, extra=tag(9, b"later")))
    dump = open_dump(tmp_path / NAME)
    assert np.array_equal(dump.records[0].tensor.stored(), np.arange(6, dtype=np.float32).reshape(2, 3))
    output = dump["concatv2:output:0"]
    assert output.stored().dtype == np.int8 and output.stored().tolist() == [1, 2, 3]
    assert output.info.origin == Origin((1, 3))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (nano_file([INPUT], [OUTPUT], PAYLOAD[:-1]), "its output 0 has 3 bytes, but only 2 bytes are left"),
        (nano_file([nano_item(True, 0, (2**40, 2**40), 24)], [], PAYLOAD), "is invalid: numpy cannot make"),
        (nano_file([nano_item(True, 0, (1,), 2**62)], [], PAYLOAD), "4611686018427387904 bytes"),
        (nano_file([], [], b"", extra=tag(4, struct.pack("<I", 2**32 - 1))), "declares 4294967295 inputs"),
        (nano_file([], [], b""), "holds no tensor"),
        (struct.pack("<Q", 4) + b"ZZZZ", "ends after the magic number"),
    ],
)
def test_damage_is_told(data: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(FormatError, match=match):
        open_dump(tmp_path / NAME)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=120))
def test_any_header_is_read_or_refused(tail: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(struct.pack("<Q", 4 + len(tail)) + b"ZZZZ" + tail)
    ReadOnly().read_anything(tmp_path / NAME)
