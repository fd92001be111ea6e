"""What a format cannot hold, in lines, before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import Quant, Record, Tensor, TensorInfo, open_dump, save_dump
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.sigmastar.binary import FRAMEWORK, SIM, BinVariant
from sgsdump.dumps.targets import losses
from sgsdump.errors import ConfigError
from sgsdump.tensors.dtypes import KNOWN


def record(
    name: str, dtype: str = "float32", io: str = "out", shape: tuple[int, ...] = (2,), **facts: object
) -> Record:
    array = np.ones(shape).astype(KNOWN[dtype])
    return Record(io, 0, 0, "ADD", Tensor.of(name, array, op_type="ADD", **facts))  # type: ignore[arg-type]


def test_alike_losses_are_one_line_with_a_number_and_names() -> None:
    records = [record(name, "float16") for name in "abcd"] + [record("e"), record("f", "int8")]
    assert losses(records, "sigmastar_bin") == [
        "4 tensors are float16, kept as float32: 'a', 'b', 'c', …",
        "1 tensor is int8, kept as float32: 'f'",
    ]


def test_what_holds_everything_loses_nothing() -> None:
    quant = Quant(KNOWN["int4"], np.array([0.1, 0.2], np.float32), -3, 1, True, "odd")
    records = [record(name, name, quant=quant, layout="NC1HWC0") for name in KNOWN]
    for format in ("npy_dir", "npz", "safetensors"):
        assert losses(records, format) == []


def test_the_order_of_bytes_is_no_loss(tmp_path: Path) -> None:
    """It said of a big-endian float32 that it is float32, kept as float32."""
    values = np.arange(-3, 3).astype(">f4").reshape(1, 2, 1, 3)
    big_endian = Record("out", 0, 0, "ADD", Tensor.of("a", values, op_type="ADD", layout="NHWC"))
    assert not losses([big_endian], "sigmastar_bin")
    save_dump([big_endian], tmp_path / "a.bin")
    assert np.array_equal(open_dump(tmp_path / "a.bin")["a"].stored(), values)


@pytest.mark.parametrize(
    "facts, variant, said",
    [
        ({"dtype": "complex64"}, None, "complex64, which float32 cannot hold: writing is refused"),
        ({"dtype": "bfloat16"}, None, "is bfloat16, kept as float32"),
        ({"dtype": "int8", "quant": Quant(np.dtype(np.int8), 0.5, 0, None, True)}, SIM, "kept as its float32 value"),
        ({"dtype": "int8", "quant": Quant(np.dtype(np.int8), 0.5, 0)}, SIM, "has no true scale: writing is refused"),
        ({"dtype": "int8"}, BinVariant(is_float=False), "has no scale and is read back as integers of unknown scale"),
        ({"dtype": "float16"}, BinVariant(is_float=False), "no type word names: writing is refused"),
        ({"quant": Quant(np.dtype(np.int8), 0.5)}, BinVariant(is_float=False), "not the integers of an isFloat 0 dump"),
        ({"quant": Quant(np.dtype(np.int8), 1e-7)}, SIM, "six decimals"),
        ({"quant": Quant(np.dtype(np.int8), np.ones(2), axis=0)}, SIM, "has a scale per channel, reduced to one scale"),
        ({"shape": (1, 2, 1, 3), "layout": "NCHW"}, None, "is NCHW, kept as NHWC"),
        ({"shape": (1, 2, 1, 3)}, None, "has layout unknown, read as NHWC"),
        ({"shape": (2, 3), "layout": "ND"}, None, "has layout ND, left out"),
        ({"shape": (2, 3), "layout": "NHWC"}, SIM, "has a shape, which is left out"),
        ({"io": "in"}, FRAMEWORK, "is an input"),
    ],
    ids=str,
)
def test_each_thing_a_binary_dump_loses_is_told(facts: dict, variant: BinVariant | None, said: str) -> None:
    told = losses([record("x", **facts)], "sigmastar_bin", variant)
    assert any(said in line for line in told), told


def test_a_name_that_no_header_holds_is_told() -> None:
    for name in ("a\nb", "\ud800"):
        assert "refused" in losses([record(name)], "sigmastar_bin")[0]
    odd = record("x")
    assert "operator" in losses([Record("out", 0, 0, "conv1", odd.tensor)], "sigmastar_bin")[0]


@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
def test_refused_means_refused_and_not_refused_means_written(tmp_path: Path) -> None:
    from sgsdump.errors import SgsdumpError

    for format in FORMATS:
        if FORMATS[format].write is None:
            continue
        for number, name in enumerate(KNOWN):
            for quant in (None, Quant(KNOWN[name], 0.5, 1, None, True), Quant(KNOWN[name], 0.5)):
                records, path = [record("x", name, quant=quant)], tmp_path / f"{format}{number}"
                refused = any("refused" in line for line in losses(records, format))
                try:
                    save_dump(records, path, format)
                    assert not refused and open_dump(path).format == format
                except SgsdumpError:
                    assert refused, (format, name, quant)


def test_values_are_not_read() -> None:
    def load() -> np.ndarray:
        raise AssertionError("a value was read")

    info = TensorInfo("x", (2,), np.dtype(np.float16))
    for format in FORMATS:
        losses([Record("out", 0, 0, "", Tensor(info, load))], format)


def test_an_unknown_format_is_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'npy_dir'"):
        losses([], "npy_dri")
