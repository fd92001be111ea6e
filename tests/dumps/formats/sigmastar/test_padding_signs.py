"""Integer dumps without shapes that may be padded are told, those without padding are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, TensorInfo, open_dump
from sgsdump.dumps.formats.sigmastar.padding_signs import padding_notes
from sgsdump.dumps.formats.sigmastar.unpadded import unpadded
from sgsdump.sidecars import parse_net

DUMP = "sigma_outtensor_dump.bin"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny_fixed_d_plain", True),
        ("tiny_all16_plain", True),
        ("tiny_fixed_b_elim", False),
        ("tiny_all16_elim", False),
        ("tiny_fixed_c_dequant", False),
        ("tiny_float_b_noelim", False),
    ],
)
def test_the_vendors_padded_dumps_are_told_and_no_others(shared: Path, name: str, told: bool) -> None:
    dump = open_dump(shared / "sigmastar/dumps" / name / DUMP)
    assert len(dump.notes) == told
    if told:
        assert dump.notes[0].startswith("may be padded: all of 27 integer tensors") and "--parse-net" in dump.notes[0]


def test_nothing_is_told_where_parse_net_says_the_shapes(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_fixed_d_plain" / DUMP)
    net = parse_net.read(shared / "sigmastar/model/parse_net_tiny_fixed_L5.txt")
    assert unpadded(dump, net).notes == ()


def record(size: int, last: int = 0, dtype: type = np.uint8, **facts: object) -> Record:
    values = np.ones(size, dtype)
    values[-1:] = last
    info = TensorInfo("x", facts.get("shape"), values.dtype)  # type: ignore[arg-type]
    return Record("out", 0, 0, "CONV_2D", Tensor(info, lambda: values), constant=bool(facts.get("constant")))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([record(64), record(128, 1)], True),
        ([record(64, 1), record(128, 1)], False),
        ([record(64), record(100)], False),
        ([record(64), record(10, dtype=np.float32)], True),
        ([record(64, dtype=np.float32)], False),
        ([record(64, shape=(64,))], False),
        ([record(64, constant=True)], False),
        ([record(0)], False),
        ([], False),
    ],
)
def test_what_counts_as_a_sign(records: list[Record], told: bool) -> None:
    sizes = [record.tensor.raw().nbytes for record in Dump(records).records]
    assert len(padding_notes(records, sizes)) == told
