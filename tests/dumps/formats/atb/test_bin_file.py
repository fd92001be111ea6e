"""Single ATB tensor files: genuine ones, every form of the header, every type of element, and crafted damage."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from dumps.formats.conformance import Conformance, plain_records, values
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump import Dump, Record, Tensor, TensorInfo, open_dump, save_dump
from sgsdump.dumps.formats.shared.ascend_types import ACL_TYPES, acl_number_of
from sgsdump.dumps.targets import losses
from sgsdump.errors import FormatError, OutputError, SgsdumpError, ValuesError
from sgsdump.tensors.dtypes import KNOWN, carried
from sgsdump.tensors.statistics import Statistics

# A file's name is its tensor's, so a dump called otherwise loses it; most tests here look at what is in the file.
pytestmark = pytest.mark.filterwarnings("ignore:atb_bin cannot hold everything. 1 tensor has a name:UserWarning")
LINES = ["$Version=1.0", "$Object.Count=1", "$Object.Length=8", "format=2", "dtype=1", "dims=2,2", "$Object.data=0,8"]
HALVES = np.arange(4, dtype=np.float16).reshape(2, 2)


class TestConformance(Conformance):
    format = "atb_bin"

    def records(self) -> list[Record]:
        """One tensor that is called as its file."""
        record = plain_records()[0]
        info = replace(record.tensor.info, name="dump", op_type="")
        return [Record("out", 0, 0, "", Tensor(info, record.tensor.raw))]


def bin_file(lines: list[str], payload: bytes = b"", ending: str = "$End=1\n") -> bytes:
    return "".join(f"{line}\n" for line in lines).encode() + ending.encode() + payload


def opened(path: Path, data: bytes) -> Dump:
    path.write_bytes(data)
    return open_dump(path)


def plain_files(shared: Path) -> list[Path]:
    """The genuine files that say nothing but the truth."""
    found = sorted((shared / "ascend/atb_dump_tree/all_f0").rglob("*.bin"))
    assert len(found) == 42
    return [*found, shared / "ascend/atb_bin_from_tests/mocked_binary_data.bin"]


def test_genuine_plain_files_saved_again_are_the_same_bytes(shared: Path, tmp_path: Path) -> None:
    for path in plain_files(shared):
        dump = open_dump(path)
        assert dump.format == "atb_bin" and dump.notes == ()
        save_dump(dump, tmp_path / "again.bin")
        assert (tmp_path / "again.bin").read_bytes() == path.read_bytes(), path


def test_the_vendors_golden_array(shared: Path) -> None:
    folder = shared / "ascend/atb_bin_from_tests/st_compare"
    dump = open_dump(folder / "msit_dump/tensors/0/foo/after/intensor0.bin")
    found, expected = dump["intensor0"].stored(), np.load(folder / "golden.npy")
    assert (found.dtype, found.shape) == (expected.dtype, (2, 4))
    np.testing.assert_array_equal(found.reshape(-1), expected)
    assert dump.notes == ("intensor0.bin declares 8 bytes, but its shape needs 16; 16 bytes are read",)


def test_genuine_files_of_the_vendors_tests(shared: Path) -> None:
    folder = shared / "ascend/atb_bin_from_tests"
    assert open_dump(folder / "mocked_binary_data.bin")["mocked_binary_data"].raw().tobytes() == b"1212"
    operator = folder / "st_opcheck/msit_dump/tensors/foo/0/0_LinearOperation/after"
    a, b, product = (
        next(iter(open_dump(operator / f"{name}.bin").values())).real()
        for name in ("intensor0", "intensor1", "outtensor0")
    )
    assert a.shape == b.shape == (2, 16)
    np.testing.assert_array_equal(a @ b.T, product)
    statistics = open_dump(folder / "msit_stats_only_complete.bin")["msit_stats_only_complete"]
    assert statistics.info.shape == (1, 2, 3)
    assert statistics.statistics == Statistics(0.1, 10.5, 5.0, 7.2)
    with pytest.raises(ValuesError, match="only statistics"):
        statistics.real()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unsupport_dtype_binary_data", "has dtype=999, which is not a known element type"),
        ("msprobe_ut_dtype27_no_object", r"holds 4 bytes of values, but its shape \[2, 2\] needs 8"),
    ],
)
def test_what_the_vendor_refuses_is_refused(shared: Path, name: str, why: str) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        open_dump(shared / f"ascend/atb_bin_from_tests/{name}.bin")
    assert "\n" not in str(caught.value)


def test_files_written_twice_give_their_first_tensor(shared: Path) -> None:
    """The vendor's readers fail on these."""
    folder, once = (shared / f"ascend/atb_dump_tree/{name}/atb_dump_data" for name in ("append", "all_f0"))
    for path in sorted(folder.rglob("*.bin")):
        dump, single = open_dump(path), open_dump(once / path.relative_to(folder))
        assert dump.notes == (f"{path.name} holds several tensors; only the first is read",)
        (found,), (expected,) = dump.values(), single.values()
        assert found.info == expected.info
        np.testing.assert_array_equal(found.stored(), expected.stored())


def test_the_forms_of_the_header(tmp_path: Path) -> None:
    payload = HALVES.tobytes()
    bare = ["dtype=1", "dims=2,2"]
    wrong_length = [line.replace("8", "4") for line in LINES]
    forms = {
        bin_file(LINES, payload): (),
        bin_file(bare, payload): (),
        bin_file(LINES, payload, "$END=1\n"): (),
        bin_file([*LINES, "$Future=1"], payload): ("x.bin has the unknown header line '$Future=1'",),
        bin_file(wrong_length, payload): ("x.bin declares 4 bytes, but its shape needs 8; 8 bytes are read",),
        bin_file(LINES, payload + b"??"): ("x.bin has 2 trailing bytes",),
        bin_file([*LINES, "$Object.more=8,2"], payload + b"??"): (
            "x.bin holds 2 objects; only 'data' is read",
            "x.bin has 2 trailing bytes",
        ),
        bin_file(["$Object.more=8,2", *LINES], payload + b"??"): (
            "x.bin holds 2 objects; only 'data' is read",
            "x.bin has 2 trailing bytes",
        ),
        bin_file([line.replace("=0,8", "=2,8") for line in LINES], b"??" + payload): (
            "x.bin declares an object that ends at byte 10, but has only 8 bytes",
        ),
    }
    for data, notes in forms.items():
        dump = opened(tmp_path / "x.bin", data)
        assert dump.notes == notes
        np.testing.assert_array_equal(dump["x"].stored(), HALVES)


def test_a_scalar_has_no_dims(tmp_path: Path) -> None:
    data = bin_file(["dtype=0", "dims="], np.float32(1.5).tobytes())
    assert opened(tmp_path / "x.bin", data)["x"].stored().shape == ()
    save_dump([Tensor.of("x", np.float32(1.5).reshape(()))], tmp_path / "y.bin", "atb_bin")
    assert b"dims=\n" in (tmp_path / "y.bin").read_bytes()
    assert open_dump(tmp_path / "y.bin")["y"].stored() == np.float32(1.5)


def test_an_alias_alone_has_no_values(tmp_path: Path) -> None:
    lines = ["$Object.Count=0", "$Object.Length=0", "dtype=1", "dims=2,2", "data=1_2_outtensor0.bin"]
    tensor = opened(tmp_path / "x.bin", bin_file(lines))["x"]
    assert tensor.info == TensorInfo("x", (2, 2), np.dtype(np.float16))
    with pytest.raises(ValuesError, match=r"1_2_outtensor0\.bin of the same run. Open the folder of the whole dump"):
        tensor.stored()


def alias_at(path: Path, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bin_file(["$Object.Count=0", "$Object.Length=0", "dtype=1", "dims=2,2", f"data={target}"]))
    return path


def test_an_alias_in_its_dump_has_the_values_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "0_77/3"
    first = alias_at(run / "1_Layer/1_B/before/intensor0_x.bin", "1_0_outtensor0.bin")
    alias_at(run / "1_Layer/0_A/after/outtensor0.bin", "2_intensor1.bin")  # which is an alias itself
    values = run / "2_Layer/before/intensor1_mask.bin"
    values.parent.mkdir(parents=True)
    values.write_bytes(bin_file(LINES, HALVES.tobytes()))
    np.testing.assert_array_equal(open_dump(first)["intensor0_x"].stored(), HALVES)
    monkeypatch.chdir(first.parent)
    np.testing.assert_array_equal(open_dump("intensor0_x.bin")["intensor0_x"].stored(), HALVES)

    outside = values.rename(tmp_path / "outside.bin")
    values.symlink_to(outside)
    dump = open_dump(first)
    said = "it is an alias of 2_intensor1.bin, which is missing. Check that the dump was copied completely"
    assert dump.notes == (f"intensor0_x.bin has no values: {said}",)
    with pytest.raises(ValuesError, match="which is missing"):
        dump["intensor0_x"].stored()
    values.unlink()
    values.write_bytes(b"$Version=1.0\n")  # damaged
    assert "which is missing" in open_dump(first).notes[0]
    alias_at(values, "1_1_intensor0.bin")
    assert "cycle" in open_dump(first).notes[0]


@pytest.mark.parametrize(
    ("number", "dims", "payload", "expected"),
    [
        (29, "5", b"\x21\xf8\x07", [1, 2, -8, -1, 7]),  # int4: two to a byte, the first low
        (30, "2,5", b"\xa0\x40", [[1, 0, 1, 0, 0], [0, 0, 0, 0, 1]]),  # uint1: eight to a byte, the first high
        (16, "1", np.array([1 - 2j], np.complex64).tobytes(), [1 - 2j]),
        (17, "1", np.array([1 - 2j]).tobytes(), [1 - 2j]),
        (33, "1", np.array([1, -2], np.float16).tobytes(), [1 - 2j]),
        (27, "2", b"\x80\x3f\xc0\xff", [1.0, np.nan]),
        (34, "3", b"\x08\x6f\xef", [1.0, np.inf, -np.inf]),
        (35, "2", b"\xfc\x3c", [-np.inf, 1.0]),  # the vendor gives +inf
        (36, "2", b"\x7f\x38", [np.nan, 1.0]),  # the vendor gives 480
        (37, "2", b"\x7f\x80", [1.0, 2.0]),
        (40, "3", b"\x21\x0f", [0.5, 1.0, -6.0]),
        (41, "3", b"\x21\x0f", [0.25, 0.5, -1.75]),
        (12, "3", b"\x00\x01\x00", [False, True, False]),
        (10, "1", b"\xff" * 8, [2**64 - 1]),
    ],
)
def test_elements_mean_what_the_vendor_means(
    tmp_path: Path, number: int, dims: str, payload: bytes, expected: list
) -> None:
    tensor = opened(tmp_path / "x.bin", bin_file([f"dtype={number}", f"dims={dims}"], payload))["x"]
    stored = tensor.stored()
    wide = np.complex128 if np.iscomplexobj(expected) else np.asarray(expected).dtype
    np.testing.assert_array_equal(stored.astype(wide), np.array(expected))


def test_types_that_nobody_can_decode_are_bytes(tmp_path: Path) -> None:
    dump = opened(tmp_path / "x.bin", bin_file(["dtype=13", "dims=2"], b"hello"))
    assert dump["x"].info.shape is None and dump["x"].raw().tobytes() == b"hello"
    assert dump.notes == ("x.bin holds elements of string, which are read as bytes",)


def test_the_numbers_of_types() -> None:
    known = {
        0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 4: np.uint8, 6: np.int16, 7: np.uint16, 8: np.uint32,
        9: np.int64, 10: np.uint64, 11: np.float64, 12: np.bool_, 16: np.complex64, 17: np.complex128,
        27: ml_dtypes.bfloat16, 29: ml_dtypes.int4, 35: ml_dtypes.float8_e5m2,
        36: ml_dtypes.float8_e4m3fn, 37: ml_dtypes.float8_e8m0fnu, 40: ml_dtypes.float4_e2m1fn,
    }  # fmt: skip
    if hasattr(ml_dtypes, "uint1"):
        known[30] = ml_dtypes.uint1
    for number, dtype in known.items():
        coding = ACL_TYPES[number].coding
        assert coding is not None and coding.dtype == np.dtype(dtype) and acl_number_of(np.dtype(dtype)) == number
    assert 5 not in ACL_TYPES and acl_number_of(np.dtype(ml_dtypes.float8_e4m3fnuz)) is None


@pytest.mark.parametrize(
    ("line", "instead", "why"),
    [
        ("dims=2,2", "dims=-2,2", "not a shape"),
        ("dims=2,2", "dims=2,,2", "not a shape"),
        ("dims=2,2", "dims=2x2", "not a shape"),
        ("dims=2,2", "dims=٢,2", "not a shape"),
        ("dims=2,2", "dims=" + "1," * 40 + "1", "not a shape"),
        ("dims=2,2", "dims=1000,1000,1000", "holds 8 bytes of values"),
        ("dims=2,2", "dims=9999999999,9999999999,0", "too large for any memory"),
        ("dims=2,2", "dims=2\r", "not a shape"),
        ("dims=2,2", "format=3", "repeats the attribute 'format'"),
        ("dims=2,2", "$Object.Length=8", "repeats .Object.Length"),
        ("dims=2,2", "$Object.data=0,8", "repeats the object 'data'"),
        ("dims=2,2", "size=4", "has no dims"),
        ("dtype=1", "kind=1", "has no dtype"),
        ("dtype=1", "dtype=five", "not a number"),
        ("dtype=1", "dtype=5", "not a known element type"),
        ("dtype=1", "dtype=-1", "not a known element type"),
        ("dtype=1", "dtype", "not NAME=VALUE"),
        ("dtype=1", "dtype=", "not NAME=VALUE"),
        ("dtype=1", "=1", "not NAME=VALUE"),
        ("dtype=1", "dtype=1=1", "not NAME=VALUE"),
        ("dtype=1", "", "not NAME=VALUE"),
        ("$Object.data=0,8", "$Object.data=8,8", "holds 0 bytes of values"),
        ("$Object.data=0,8", "$Object.data=1000000000000000000,8", "holds 0 bytes of values"),
        ("$Object.data=0,8", "$Object.data=-1,8", "not OFFSET,LENGTH"),
        ("$Object.data=0,8", "$Object.data=8", "not OFFSET,LENGTH"),
        ("$Object.Length=8", "$Object.Length=eight", "not a number of bytes"),
        ("$Object.Length=8", "$End=2", r"not \$End=1"),
    ],
)  # fmt: skip
def test_damaged_headers_are_refused(tmp_path: Path, line: str, instead: str, why: str) -> None:
    lines = [instead if this == line else this for this in LINES]
    with pytest.raises(FormatError, match=why) as caught:
        opened(tmp_path / "x.bin", bin_file(lines, HALVES.tobytes()))
    assert str(tmp_path / "x.bin") in str(caught.value) and "\n" not in str(caught.value)


def test_headers_without_end(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="first 8000 lines"):
        opened(tmp_path / "x.bin", bin_file(["$Version=1.0", *(f"a{i}=1" for i in range(8000))]))
    with pytest.raises(FormatError, match="not text"):
        opened(tmp_path / "x.bin", b"$Version=1.0\na=\xff\n")
    with pytest.raises(FormatError, match=r"cut off in its header, line 2"):
        opened(tmp_path / "x.bin", b"$Version=1.0\na=" + b"1" * 2**21)


def test_a_genuine_file_cut_anywhere_is_refused(shared: Path, tmp_path: Path) -> None:
    data = plain_files(shared)[0].read_bytes()
    for length in range(len(data)):
        with pytest.raises(SgsdumpError):
            opened(tmp_path / "x.bin", data[:length])


@settings(max_examples=200)
@given(st.data())
def test_a_changed_byte_is_no_surprise(data: st.DataObject) -> None:
    whole = bytearray(bin_file(LINES, HALVES.tobytes()))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for tensor in opened(Path(folder) / "x.bin", bytes(whole)).values():
                assert tensor.stored().nbytes <= 8 * len(whole)
        except SgsdumpError as error:
            assert "\n" not in str(error)


@settings(max_examples=100)
@given(st.data())
def test_any_tensor_that_can_be_written_comes_back(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([dtype for dtype in KNOWN.values() if acl_number_of(dtype) is not None]))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=5)))
    layout = data.draw(st.sampled_from([None, "FRACTAL_NZ", "NC1HWC0", *(["NCHW", "NHWC"] if len(shape) == 4 else [])]))
    array = data.draw(values(dtype, shape))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bin"
        tensor = Tensor.of("x", array, layout=layout)
        save_dump([tensor], path, "atb_bin")
        found = open_dump(path)
        assert found.notes == () and found["x"].info == tensor.info
        assert carried(found["x"].stored()).tobytes() == carried(array).tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in KNOWN.values() if acl_number_of(dtype) is not None], ids=str)
def test_bits_come_back(tmp_path: Path, dtype: np.dtype) -> None:
    bits = np.resize(np.array([0, 1], np.uint8), 6 * dtype.itemsize)
    array = bits.view(np.bool_ if dtype == np.bool_ else dtype).reshape(2, 3)
    save_dump([Tensor.of("x", array)], tmp_path / "x.bin", "atb_bin")
    found = open_dump(tmp_path / "x.bin")["x"].stored()
    assert found.dtype == dtype and carried(found).tobytes() == carried(array).tobytes()


def test_what_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    record = Record("out", 0, 0, "", Tensor.of("x", np.zeros(2, ml_dtypes.float8_e4m3fnuz)))
    assert any("ATB has no number: writing is refused" in line for line in losses([record], "atb_bin"))
    with pytest.raises(ValuesError, match="float8_e4m3fnuz, for which ATB has no number"):
        save_dump([record], tmp_path / "x.bin", "atb_bin")
    assert "is not the first" in " ".join(losses(plain_records()[:2], "atb_bin"))
    with pytest.raises(OutputError, match=r"holds one tensor\. Select one tensor, or write the format atb_tree"):
        save_dump(plain_records()[:2], tmp_path / "x.bin", "atb_bin")
    assert not os.listdir(tmp_path)


def test_statistics_are_written_as_such(tmp_path: Path) -> None:
    info = TensorInfo("x", (2, 3), np.dtype(np.float16))
    statistics = Statistics(-0.1, float("inf"), 1e-7, 3.0)
    save_dump([Tensor.of_statistics(info, statistics)], tmp_path / "x.bin", "atb_bin")
    found = open_dump(tmp_path / "x.bin")["x"]
    assert found.info == info and found.statistics == statistics
    with pytest.raises(ValuesError, match="none of them"):
        save_dump([Tensor.of_statistics(info, Statistics(count=6))], tmp_path / "y.bin", "atb_bin")


def test_a_file_that_shrinks_while_open_is_told(tmp_path: Path) -> None:
    dump = opened(tmp_path / "x.bin", bin_file(LINES, HALVES.tobytes()))
    os.truncate(tmp_path / "x.bin", 20)
    with pytest.raises(FormatError, match="has changed"):
        dump["x"].stored()
