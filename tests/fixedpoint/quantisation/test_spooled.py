"""A dump in a file without a name: the records as they were given, each tensor's values written once, nothing left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.comparison.merge import Compared
from sgsdump.dumps.dump import Record
from sgsdump.errors import OutputError, ValuesError
from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import over_all, spooled
from sgsdump.tensors.tensor import Quant, Tensor

A = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
B = np.array([1, 2, 3], np.uint8)


def records() -> list[Record]:
    weights = Tensor.of("w", np.ones(5, np.float32))
    quant = Quant(np.dtype(np.uint8), 0.5, 1, exact=True)
    return [
        Record("in", 0, 0, "Conv", Tensor.of("data", B, quant=quant)),
        Record("in", 1, 0, "Conv", weights, True),
        Record("out", 0, 0, "Conv", Tensor.of("a", A.transpose(0, 2, 3, 1), layout="NHWC")),
        Record("in", 0, 1, "Relu", Tensor.of("a", A.transpose(0, 2, 3, 1), layout="NHWC")),
        Record("out", 0, 1, "Relu", Tensor.of("empty", np.zeros((0, 3), np.float32))),
        Record("out", 1, 1, "Relu", Tensor.of("scalar", np.array(7.0, np.float32))),
        Record("out", 0, 2, "NonZero", Tensor.of("none", np.zeros((2, 0), np.int64))),  # after the file's last byte
    ]


def test_records_and_values_are_those_given(tmp_path: Path) -> None:
    dump = spooled(iter(records()), tmp_path)
    assert not list(tmp_path.iterdir())
    for record, given in zip(dump.records, records(), strict=True):
        assert (record.io, record.slot, record.op_index, record.op_type, record.constant) == (
            (given.io, given.slot, given.op_index, given.op_type, given.constant)
        )
        assert record.tensor.info == given.tensor.info
        np.testing.assert_array_equal(record.tensor.stored(), given.tensor.stored())
    assert dump["data"].real().tolist() == [0.0, 0.5, 1.0]
    assert compare(dump, spooled(records(), tmp_path))["a"].equal is False
    assert compare(dump, spooled(records(), tmp_path))["a"].mse == 0


def test_large_values_are_compared_and_let_go_like_those_of_any_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2, 300_000)).astype(np.float32)
    large = [[Record("out", 0, 0, "Conv", Tensor.of("a", row))] for row in values]
    row = compare(*(spooled(iter(each), tmp_path) for each in large))["a"]
    assert row.mse == pytest.approx(np.square(values[0].astype(float) - values[1]).mean(), rel=1e-12)


def test_values_are_written_before_the_next_record_is_made(tmp_path: Path) -> None:
    """What makes the records may use one buffer again and again."""
    buffer = np.zeros(1000, np.float32)

    def made():
        for number in range(3):
            buffer[:] = number
            yield Record("out", 0, number, "Conv", Tensor.of(f"t{number}", buffer))

    dump = spooled(made(), tmp_path)
    assert [float(dump[f"t{number}"].real().max()) for number in range(3)] == [0, 1, 2]


def test_a_closed_one_has_no_values_and_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    dump = spooled(records(), tmp_path)
    dump.close()
    with pytest.raises(ValuesError, match="closed"):
        dump["a"].real()
    with pytest.raises(OutputError, match="cannot write the values of a run"):
        spooled(records(), tmp_path / "none")


def test_of_no_values_at_all(tmp_path: Path) -> None:
    dump = spooled([Record("out", 0, 0, "Relu", Tensor.of("empty", np.zeros(0, np.float32)))], tmp_path)
    assert dump["empty"].real().shape == (0,)


def test_only_the_dumps_of_the_last_image_stay_open(tmp_path: Path) -> None:
    """The report shows their values; the files of the others are gone before the next image runs."""
    opened: list[Compared] = []

    def results():
        for _ in range(3):
            for earlier in opened:
                with pytest.raises(ValuesError):
                    earlier.sample["a"].stored()
            sample, benchmark = (spooled(iter(records()), tmp_path) for _ in range(2))
            opened.append(Compared(compare(sample, benchmark), sample, benchmark))
            yield opened[-1]

    last = over_all(results(), ["1.png", "2.png", "3.png"])
    assert last.label == "3.png" and last.sample["a"].stored().shape == (1, 3, 4, 2)
