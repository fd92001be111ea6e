"""Dump: an ordered mapping of its outputs, with one rule for names that come twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.io import as_records
from sgsdump.errors import ConfigError, FormatError, SgsdumpError


def record(io: str, slot: int, op_index: int, name: str, value: float = 0.0, constant: bool = False) -> Record:
    tensor = Tensor.of(name, np.array([value], np.float32))
    return Record(io, slot, op_index, "ADD", tensor, constant)  # type: ignore[arg-type]


DUMP = Dump(
    [
        record("in", 0, 0, "data", 1),
        record("in", 1, 0, "w", 2, constant=True),
        record("out", 0, 0, "a", 3),
        record("in", 0, 1, "a", 3),
        record("in", 1, 1, "data", 1),
        record("out", 0, 1, "b", 4),
        record("out", 0, 2, "a", 5),
        record("out", 0, 3, "c", 6, constant=True),
    ]
)


def test_it_is_an_ordered_mapping_of_output_tensors() -> None:
    assert isinstance(DUMP, Mapping)
    assert list(DUMP) == ["a", "b"] and len(DUMP) == 2
    assert [tensor.info.name for tensor in DUMP.values()] == ["a", "b"]
    assert "b" in DUMP and "data" not in DUMP and "w" not in DUMP and 7 not in DUMP
    assert DUMP.get("data") is None


def test_of_outputs_with_one_name_the_first_counts_and_the_others_stay_in_the_records() -> None:
    assert DUMP["a"].real().tolist() == [3.0]
    assert [r.tensor.real()[0] for r in DUMP.records if r.name == "a" and r.io == "out"] == [3.0, 5.0]


def test_inputs_and_constants() -> None:
    assert {name: t.real()[0] for name, t in DUMP.inputs.items()} == {"data": 1.0}
    assert {name: t.real()[0] for name, t in DUMP.constants.items()} == {"w": 2.0, "c": 6.0}


def test_an_unknown_name_is_a_key_error_with_near_misses() -> None:
    dump = Dump([record("out", 0, 0, "conv1")])
    with pytest.raises(KeyError, match=r"conv2.*did you mean 'conv1'"):
        dump["conv2"]


def test_a_genuine_file_with_a_name_twice(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/compare_reports/edge_cases/sample.bin")
    both = [r.tensor for r in dump.records if r.name == "dup"]
    assert len(both) == 2 and dump["dup"] is both[0]
    assert both[0].real().sum() == 136 and both[1].real().sum() == 272


def test_a_genuine_simulator_dump(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin")
    assert list(dump.inputs) == ["data"]
    assert [*dump][:1] == ["conv1"] and [*dump][-1:] == ["prob"]
    assert "conv1_filter" in dump.constants and "cat" in dump
    assert dump["prob"].real().sum() == pytest.approx(1, abs=1e-6)
    assert str(dump.path) in repr(dump)


def test_tensors_are_numbered_as_outputs_of_operators() -> None:
    tensors = [Tensor.of("a", np.zeros(1)), DUMP.records[0], Tensor.of("b", np.zeros(1), op_type="Relu")]
    records = list(as_records(tensors))
    assert [(r.io, r.slot, r.op_index, r.op_type) for r in records] == [
        ("out", 0, 0, ""),
        ("in", 0, 0, "ADD"),
        ("out", 0, 2, "Relu"),
    ]


def test_a_stream_is_saved_and_read(tmp_path: Path) -> None:
    save_dump((Tensor.of(f"t{i}", np.full((1, 2), i, np.float32)) for i in range(3)), tmp_path / "d.bin")
    dump = open_dump(str(tmp_path / "d.bin"))
    assert [tensor.real()[0, 0] for tensor in dump.values()] == [0, 1, 2]


def test_unknown_format_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'sigmastar_bin'"):
        save_dump(DUMP, tmp_path / "d", "sigmastar_bim")


def test_what_is_no_dump_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    for name, message in (
        ("missing", "no such file"),
        ("empty", "is empty"),
        ("text", "not a dump"),
        (".", "not a dump|is a folder"),
    ):
        with pytest.raises(SgsdumpError, match=message) as caught:
            open_dump(tmp_path / name)
        assert isinstance(caught.value, FormatError)
        assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
