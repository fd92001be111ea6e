"""Overflow statuses that are damaged or odd; the genuine ones are in tests/dumps/formats/ascend/test_ascend_dump.py."""

from __future__ import annotations

import struct

import pytest

from sgsdump.dumps.formats.ascend.overflow import parse, summary
from sgsdump.errors import FormatError

MAGIC = 0x5A5A5A5A


def status(acc_type: int, numbers: int, version: int = 0) -> bytes:
    return struct.pack(f"<6I{numbers}Q", MAGIC, version, 1, acc_type, 0, 8 * numbers, *range(1, numbers + 1))


@pytest.mark.parametrize(("acc_type", "numbers", "version"), [(0, 11, 0), (1, 14, 1), (2, 8, 0), (3, 10, 1)])
def test_every_unit_has_its_own_length(acc_type: int, numbers: int, version: int) -> None:
    data = status(acc_type, numbers, version)
    told = parse(data + b"more", "x")["acc_list"]["data"]
    assert told["status"] == ([11, 12, 13, 14] if numbers == 14 else numbers)
    for length in range(len(data)):
        with pytest.raises(FormatError, match=r"^x is"):
            parse(data[:length], "x")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(FormatError, match="unit 7"):
        parse(status(7, 20), "x")


def test_the_summary_of_the_old_form_names_the_units_that_overflowed() -> None:
    data = bytearray(2048)
    struct.pack_into("<Q", data, 768, 5)
    assert summary(parse(bytes(data), "x")) == "overflow on L2 Atomic Add: model 0, stream 0, task 0, status 5"
    assert summary(parse(bytes(2048), "x")).count("status 0") == 3


def test_status_words_that_are_all_zero_are_no_overflow() -> None:
    task = struct.pack("<10Q", *range(10))
    head = struct.pack("<6I", 0x5A5A5A5A, 1, 1, 0, 0, 112)
    clean, overflown = head + task + bytes(32), head + task + struct.pack("<4Q", 0, 0, 8, 0)
    assert summary(parse(clean, "x")).startswith("no overflow on AIC: model 0, ")
    assert summary(parse(overflown, "x")).startswith("overflow on AIC: ")
    assert summary(parse(bytes(2048), "x")).startswith("no overflow on DHA Atomic Add: ")
