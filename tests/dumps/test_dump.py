"""Dump: an ordered mapping of its outputs, with one rule for names that come twice."""

from __future__ import annotations

import gc
import os
import sys
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump import Dump, LossWarning, Record, Tensor, TensorInfo, open_dump, save_dump
from sgsdump.dumps.dump import ROWS_SHOWN
from sgsdump.dumps.inventory import inventory
from sgsdump.dumps.io import as_records
from sgsdump.errors import ConfigError, FormatError, MissingExtra, SgsdumpError, ValuesError
from sgsdump.files.mapped import mapping_of


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


def test_it_is_an_ordered_mapping_of_all_tensors() -> None:
    assert isinstance(DUMP, Mapping) and DUMP
    assert list(DUMP) == ["data", "w", "a", "b", "c"] and len(DUMP) == 5
    assert [tensor.info.name for tensor in DUMP.values()] == list(DUMP)
    assert "b" in DUMP and "data" in DUMP and "w" in DUMP and 7 not in DUMP and "x" not in DUMP
    assert DUMP.get("x") is None and not Dump([])


def test_the_network_is_found_out_once() -> None:
    asked = []
    dump = Dump(DUMP.records, network=lambda: asked.append("asked") or {})  # type: ignore[func-returns-value]
    assert not asked
    assert dump.network() == dump.select("b").network() == dump.network() == {} and asked == ["asked"]


def test_it_covers_what_show_lists() -> None:
    listed = [item.name for item in inventory(enumerate(DUMP.records))]
    assert list(DUMP) == list(dict.fromkeys(listed))
    assert set(DUMP) == {*DUMP.outputs, *DUMP.inputs, *DUMP.constants}


def test_a_dump_of_inputs_only_is_not_empty() -> None:
    dump = Dump([record("in", 0, 0, "data")])
    assert dump and list(dump) == ["data"] and not dump.outputs


def test_a_name_is_an_output_then_an_input_then_a_constant() -> None:
    constant, read, made = (
        record("in", 1, 0, "x", 1, constant=True),
        record("in", 0, 0, "x", 2),
        record("out", 0, 0, "x", 3),
    )
    assert Dump([constant, read, made])["x"] is made.tensor
    assert Dump([constant, read])["x"] is read.tensor
    assert Dump([constant])["x"] is constant.tensor
    assert list(Dump([constant, read, made]).inputs) == []


def test_of_outputs_with_one_name_the_first_counts_and_the_others_stay_in_the_records() -> None:
    assert DUMP["a"].real().tolist() == [3.0]
    assert [r.tensor.real()[0] for r in DUMP.records if r.name == "a" and r.io == "out"] == [3.0, 5.0]


def test_inputs_and_constants() -> None:
    assert {name: t.real()[0] for name, t in DUMP.outputs.items()} == {"a": 3.0, "b": 4.0}
    assert {name: t.real()[0] for name, t in DUMP.inputs.items()} == {"data": 1.0}
    assert {name: t.real()[0] for name, t in DUMP.constants.items()} == {"w": 2.0, "c": 6.0}


def test_an_unknown_name_is_a_key_error_with_near_misses() -> None:
    dump = Dump([record("out", 0, 0, "conv1")])
    with pytest.raises(KeyError, match=r"conv2.*did you mean 'conv1'"):
        dump["conv2"]
    with pytest.raises(KeyError, match="no tensor 7"):
        dump[7]  # type: ignore[index]


def test_a_genuine_file_with_a_name_twice(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/compare_reports/edge_cases/sample.bin")
    both = [r.tensor for r in dump.records if r.name == "dup"]
    assert len(both) == 2 and dump["dup"] is both[0]
    assert both[0].real().sum() == 136 and both[1].real().sum() == 272


def test_a_genuine_simulator_dump(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin")
    assert list(dump.inputs) == ["data"]
    assert [*dump.outputs][:1] == ["conv1"] and [*dump.outputs][-1:] == ["prob"]
    assert "conv1_filter" in dump.constants and "cat" in dump.outputs and "conv1_filter" in dump
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


def test_select() -> None:
    assert list(DUMP.select("a", "d*")) == ["data", "a"]
    assert [r.name for r in DUMP.select("a").records] == ["a", "a", "a"] and DUMP.select("a")["a"] is DUMP["a"]
    assert DUMP.select("*").records == DUMP.records
    with pytest.raises(ConfigError, match=r"no tensor name matches 'A'"):
        DUMP.select("A")
    with pytest.raises(ConfigError, match="separate string, not as list"):
        DUMP.select(["a"])  # type: ignore[arg-type]


def test_a_part_keeps_how_the_dump_was_written(shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / "sigmastar/compare_reports/edge_cases/sample.bin")
    part = dump.select("dup")
    assert part.format == dump.format and part.variant == dump.variant.of_part()
    save_dump(part, tmp_path / "part.bin")
    again = open_dump(tmp_path / "part.bin")
    assert [r.tensor.real().sum() for r in again.records] == [r.tensor.real().sum() for r in part.records]


def test_the_table_is_short_and_escaped() -> None:
    def load() -> np.ndarray:
        raise AssertionError("a value was read")

    name = "<script>\n&"
    many = [Tensor(TensorInfo(name if i == 0 else f"t{i}", (1, i), np.dtype(np.int8)), load) for i in range(50)]
    dump = Dump(list(as_records(many)), "npz", path=Path("<b>.npz"))
    text, page = repr(dump), dump._repr_html_()
    assert "<script>\\n&" in text and "<b>.npz" in text and "50 tensors (50 outputs)" in text
    assert len(text.splitlines()) == 1 + 1 + ROWS_SHOWN + 1 and text.endswith("… 30 more")
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b>" not in page
    assert page.count("<tr>") == 1 + ROWS_SHOWN and "… 30 more" in page
    assert repr(Dump([])) == "<Dump: 0 tensors>"
    odd = Dump([Record("out", 0, 0, "", Tensor(TensorInfo("\ud800", None, np.dtype(np.int8)), load))])
    assert odd._repr_html_().encode() and repr(odd).encode()
    long = Dump([Record("out", 0, 0, "", Tensor(TensorInfo("x" * 5000, None, np.dtype(np.int8)), load))])
    assert max(map(len, repr(long).splitlines())) < 200


@pytest.mark.usefixtures("quick_to_collect")
def test_close_lets_go_of_the_file_and_not_of_arrays_made_before(tmp_path: Path) -> None:
    values = np.arange(1 << 14, dtype=np.float32)
    save_dump({"x": values, "y": values}, tmp_path / "d.bin")
    with open_dump(tmp_path / "d.bin") as dump:
        kept, part = dump["x"].raw_view(), dump["y"][2:4]
        mapping = weakref.ref(_mapping_of(kept))
    for ask in (dump["x"].real, dump["y"].stored, lambda: np.asarray(dump["x"]), lambda: dump["x"][0]):
        with pytest.raises(ValuesError, match=r"d\.bin was closed; open it again") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert mapping() is not None, "an array still lives on it"
    assert kept.tolist() == values.tolist() and part.tolist() == [2.0, 3.0]
    assert list(dump) == ["x", "y"] and "x" in repr(dump)
    del kept, part
    gc.collect()
    assert mapping() is None, "nothing lives on it any more"


@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
@pytest.mark.parametrize("name", ["d.bin", "d.txt", "d.npz", "d.safetensors", "d"])
@pytest.mark.usefixtures("quick_to_collect")
def test_every_format_can_be_closed(tmp_path: Path, name: str) -> None:
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    save_dump({"x": np.ones(4096, np.float32)}, tmp_path / name)
    dump = open_dump(tmp_path / name)
    dump.close()
    dump.close()
    with pytest.raises(ValuesError, match="was closed"):
        dump["x"].real()
    if sys.platform == "linux":
        gc.collect()
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_to_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install .sgsdump\[pandas\]"):
        DUMP.to_pandas()

    class DataFrame(list):  # type: ignore[type-arg]
        def __init__(self, rows: list, columns: list[str]):
            super().__init__(dict(zip(columns, row, strict=True)) for row in rows)

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=DataFrame))
    table = DUMP.to_pandas()
    assert [row["name"] for row in table] == [r.name for r in DUMP.records]
    assert table[1] == {
        **{"name": "w", "io": "in", "constant": True, "shape": (1,), "dtype": "float32"},
        **{"layout": None, "op_index": 0, "slot": 1, "op": "ADD"},
    }


@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
@pytest.mark.parametrize(
    "name, format",
    [
        *(("x.bin", "sigmastar_bin"), ("x.txt", "sigmastar_text"), ("x.npz", "npz"), ("x", "npy_dir")),
        ("x.safetensors", "safetensors"),
    ],
)
@pytest.mark.parametrize("source", ["dump", "tensors", "stream", "arrays"])
def test_the_ending_names_the_format(tmp_path: Path, name: str, format: str, source: str) -> None:
    if format == "safetensors":
        pytest.importorskip("safetensors")
    save_dump({"a": np.ones((1, 2), np.float32)}, tmp_path / "source.bin")
    dump = open_dump(tmp_path / "source.bin")
    given = {
        "dump": dump,
        "tensors": [*dump.outputs.values()],
        "stream": iter(dump.outputs.values()),
        "arrays": {"a": dump["a"].real()},
    }
    save_dump(given[source], tmp_path / name)
    again = open_dump(tmp_path / name)
    assert again.format == format and again["a"].real().tolist() == [[1.0, 1.0]]


def test_an_unknown_ending_names_the_choices(tmp_path: Path) -> None:
    for given in (DUMP, {"a": np.ones(1)}, iter([Tensor.of("a", np.ones(1))])):
        with pytest.raises(
            ConfigError, match=r"x\.foo is not the extension of a dump format.*\.npz.*format=.*npz"
        ) as caught:
            save_dump(given, tmp_path / "x.foo")
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_dump_keeps_its_own_format_where_the_name_fits(tmp_path: Path) -> None:
    with pytest.warns(LossWarning, match="a name, which becomes the file name"):
        save_dump([DUMP["a"]], tmp_path / "x.bin", "atb_bin")
    dump = open_dump(tmp_path / "x.bin")
    save_dump(dump, tmp_path / "copy.bin")
    assert (tmp_path / "copy.bin").read_bytes() == (tmp_path / "x.bin").read_bytes()
    (tmp_path / "x.bin").rename(tmp_path / "bare")
    if hasattr(os, "pread"):  # Windows writes over no file that is open
        save_dump(open_dump(tmp_path / "bare"), tmp_path / "bare")
        assert (tmp_path / "copy.bin").read_bytes() == (tmp_path / "bare").read_bytes()


def test_loss_is_a_warning_or_an_error_or_ignored(tmp_path: Path) -> None:
    arrays = {"a": np.ones(2, np.float16), "b": np.ones(2, np.float32)}
    tensors = [Tensor.of(name, array) for name, array in arrays.items()]
    for number, given in enumerate(
        (lambda: arrays, lambda: tensors, lambda: iter(tensors), lambda: Dump([*as_records(tensors)]))
    ):
        path = tmp_path / f"{number}.bin"
        with pytest.raises(ValuesError, match=r"nothing is written: sigmastar_bin.*1 tensor is float16.*'a'"):
            save_dump(given(), path, on_loss="raise")
        assert not list(tmp_path.glob(f"*{number}*"))
        with pytest.warns(LossWarning, match="float16, kept as float32: 'a'") as caught:
            save_dump(given(), path)
        assert len(caught) == 1 and "\n" not in str(caught[0].message)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            save_dump(given(), path, on_loss="ignore")
            save_dump(given(), path.with_suffix(".npz"))
            save_dump(given(), path.with_suffix(".npz"), on_loss="raise")
    assert issubclass(LossWarning, UserWarning)
    with pytest.raises(ConfigError, match="choose one of: warn, raise, ignore"):
        save_dump(arrays, tmp_path / "x.npz", on_loss="loud")  # type: ignore[arg-type]


def test_what_is_no_dump_cannot_be_saved(tmp_path: Path) -> None:
    for given, message in (
        ("x.bin", "cannot save a str"),
        (np.ones(2), "cannot save a"),
        ([np.ones(2)], "cannot save a ndarray"),
        (7, "cannot save a int"),
        ({7: np.ones(2)}, "must be strings, not 7"),
    ):
        with pytest.raises(ConfigError, match=message):
            save_dump(given, tmp_path / "x.npz")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_tensors_by_name_take_the_name_of_the_key(tmp_path: Path) -> None:
    save_dump({"new": DUMP["a"]}, tmp_path / "x.npz")
    assert list(open_dump(tmp_path / "x.npz")) == ["new"]


def _mapping_of(array: np.ndarray) -> object:
    mapping = mapping_of(array)
    assert mapping is not None
    return mapping
