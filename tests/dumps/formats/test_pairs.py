"""From any format into any other and back: what a format cannot hold is told before, exactly that, and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from dumps.formats.conformance import any_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_run import run_pipeline

from sgsdump import Quant, Record, Tensor, open_dump
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.sigmastar import binary
from sgsdump.dumps.formats.sigmastar import text_dump as text_variant
from sgsdump.errors import SgsdumpError
from sgsdump.tensors.device import Origin
from sgsdump.tensors.dtypes import KNOWN, carried
from sgsdump.tensors.types import same_quant


class Form(NamedTuple):
    """A format in one of its variants."""

    format: str
    variant: Any = None


FORMS = {
    "bin newer": Form("sigmastar_bin", binary.SIM_SHAPED),
    "bin older": Form("sigmastar_bin", binary.SIM),
    "bin integers": Form("sigmastar_bin", binary.BinVariant(is_float=False)),
    "bin older integers": Form("sigmastar_bin", binary.BinVariant(is_float=False, shaped=False)),
    "bin framework": Form("sigmastar_bin", binary.FRAMEWORK),
    "text": Form("sigmastar_text", text_variant.SIM),
    "text framework": Form("sigmastar_text", text_variant.FRAMEWORK),
    "text integers": Form("sigmastar_text", text_variant.TextVariant(is_float=False, shaped=True)),
    **{name: Form(name) for name, format in FORMATS.items() if format.write and not name.startswith("sigmastar")},
}
TYPES = "bool uint64 float16 float64 complex64 bfloat16 float8_e4m3fn float8_e8m0fnu int4 uint2".split()

# What a line of ``losses`` says of the facts of a record: those that must have changed, and those that may besides.
REFUSED, GONE = re.compile("writing is refused$"), re.compile("^is .*, which is left out")
TOLD: list[tuple[str, str, str]] = [
    ("^is .*, kept as float32$", "dtype", "values"),
    ("kept as its float32 value$", "dtype", "values"),
    ("kept as bytes$", "dtype", ""),
    ("read back as integers of unknown scale$", "quant", ""),
    ("has a scale", "quant", ""),
    ("has (a|no) shape,|has no shape and is kept flat|has an unknown shape", "shape", ""),
    ("^is (NCHW|NHWC), kept as", "layout", "shape values"),
    ("has (a )?layout", "layout", ""),
    ("has an original shape", "origin", ""),
    ("has an operator type", "producer", ""),
    ("is one of several outputs of its operator", "", "slot cut"),
    ("belongs to an unnamed operator", "op_type", ""),
    ("is an operator's input, kept as a model input", "", "slot op_index op_type producer cut"),
    ("has a name, which becomes the file name", "name", ""),
    ("has a position in its model", "", "io slot op_index op_type constant"),
    # Whether the six decimals change a value is known only when it is read.
    ("is printed with six decimals", "", "values"),
    ("has statistics, of which only", "statistics", ""),
]


def hard_records() -> list[Record]:
    """Two operators and all that is easily lost: NaN payloads, -0.0, scales, axes, types beyond numpy, odd names."""
    odd = np.array([0x7FC12345, 0xFF800001, 0x80000000, 0x7F800000, 0x00000001, 0x3F800000], np.uint32)
    floats, integers = odd.view(np.float32).reshape(1, 2, 1, 3), np.arange(6, dtype=np.int8).reshape(1, 2, 1, 3)
    some = np.arange(6).reshape(2, 3)
    exact = Quant(np.dtype(np.int8), 0.1, -3, exact=True)
    per_channel = Quant(np.dtype(np.int8), np.array([0.1, 0.2, 0.3], np.float32), 0, 3, exact=True)
    origin = Origin((1, 3, 2, 1), "NCHW")
    tensors = [
        ("in", 0, 0, Tensor.of("image", floats, layout="NCHW")),
        ("in", 1, 0, Tensor.of("image/2:0", some.astype(np.uint8))),
        ("in", 2, 0, Tensor.of("weights", integers, layout="NHWC", quant=per_channel)),
        ("out", 0, 0, Tensor.of("a/b:0", floats, layout="NHWC", op_type="CONV_2D")),
        ("out", 1, 0, Tensor.of("a_b0", integers, layout="NHWC", quant=exact)),
        ("in", 0, 1, Tensor.of("a/b:0", floats, layout="NHWC", op_type="CONV_2D")),
        ("out", 0, 1, Tensor.of("../../x", some.astype(np.int16), quant=Quant(np.dtype(np.int16), 0.5))),
        ("out", 0, 2, Tensor.of("Größe", floats.reshape(1, 1, 2, 1, 3), layout="NC1HWC0", origin=origin)),
        *(("out", 0, 3 + n, Tensor.of(name, some.astype(KNOWN[name]))) for n, name in enumerate(TYPES)),
    ]
    return [
        Record(io, slot, index, "CONV_2D", tensor, tensor.info.name == "weights")  # type: ignore[arg-type]
        for io, slot, index, tensor in tensors
    ]


def facts(record: Record) -> dict[str, Any]:
    """All that may be lost of a record, each under its name."""
    info, tensor = record.tensor.info, record.tensor
    return {
        "io": record.io,
        "slot": record.slot,
        "op_index": record.op_index,
        "op_type": record.op_type,
        "constant": record.constant,
        "cut": record.cut,
        "name": info.name,
        "shape": info.shape,
        "dtype": info.dtype,
        "layout": info.layout,
        "origin": info.origin,
        "producer": info.op_type,
        "quant": info.quant,
        "statistics": tensor.statistics,
        "values": carried(tensor.raw()).tobytes() if tensor.statistics is None else None,
    }


def changed(before: Record, after: Record) -> set[str]:
    old, new = facts(before), facts(after)
    same = {name: same_quant(old[name], new[name]) if name == "quant" else old[name] == new[name] for name in old}
    return {name for name, is_same in same.items() if not is_same}


def told(lines: Sequence[str]) -> tuple[set[str], set[str]]:
    """The facts that must have changed when these lines are true, and those that may."""
    must, may = set[str](), set[str]()
    for line in lines:
        surely, perhaps = next((found[1:] for found in TOLD if re.search(found[0], line)), (None, ""))
        assert surely is not None, f"a loss that this test does not know: {line}"
        must |= set(surely.split())
        may |= set(perhaps.split())
    return must, must | may


def losses_of(records: Sequence[Record], form: Form) -> list[list[str]]:
    """What is told of each record."""
    found: dict[int, list[str]] = {id(record): [] for record in records}
    for lost in FORMATS[form.format].loses(records, form.variant):
        found[id(lost.record)].append(str(lost))
    return [found[id(record)] for record in records]


def without_refused(records: Sequence[Record], form: Form) -> list[Record]:
    """The records that can be written; that the others cannot is checked."""
    kept = [record for record in records if not reads_as_left_out(record, form)]
    while refused := [r for r, lines in zip(kept, losses_of(kept, form)) if any(map(REFUSED.search, lines))]:
        kept = [record for record in kept if not any(record is other for other in refused)]
    return kept


def reads_as_left_out(record: Record, form: Form) -> bool:
    """Text dumps of integers leave some values out; of unknown shape, nothing tells a tensor that is empty itself."""
    of_integers = form.format == "sigmastar_text" and form.variant is not None and not form.variant.is_float
    return of_integers and record.tensor.info.shape is None and not record.tensor.raw().size


def converted(records: Sequence[Record], form: Form, path: Path) -> list[Record]:
    """The records in another form, after what is told of it has been held against what came of it."""
    records = without_refused(records, form)
    lines = losses_of(records, form)
    staying = [(r, said) for r, said in zip(records, lines) if not any(map(GONE.search, said))]
    if not staying:
        return []
    FORMATS[form.format].write(iter(records), path, form.variant)
    dump = open_dump(path)
    assert dump.format == form.format
    for (record, said), after in zip(staying, dump.records, strict=True):
        must, may = told(said)
        # That the SDK allocated more than the picture needs is no fact: it shows when the values are read.
        may |= {"shape", "layout", "values"} if is_overallocated(record) else set()
        difference = changed(record, after)
        assert difference <= may, (f"lost in silence: {difference - may}", record, said)
        assert must <= difference, (f"a false alarm: {must - difference}", record, said)
    return list(dump.records)


def there_and_back(a: Form, b: Form, records: Sequence[Record], folder: Path) -> None:
    """Any records as a dump of A (so far as A holds them), that as one of B, that as one of A again."""
    there = converted(converted(records, a, folder / "a"), b, folder / "b")
    converted(there, a, folder / "again")


def is_overallocated(record: Record) -> bool:
    shape, tensor = record.tensor.info.shape, record.tensor
    return shape is not None and tensor.statistics is None and tensor.raw().size > math.prod(shape)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(FORMS)), st.sampled_from(list(FORMS)), any_records())
def test_any_records_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, a: str, b: str, records: list[Record]
) -> None:
    there_and_back(FORMS[a], FORMS[b], records, tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("b", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("a", FORMS.values(), ids=FORMS)
def test_each_pair_with_what_is_easily_lost(a: Form, b: Form, tmp_path: Path) -> None:
    there_and_back(a, b, hard_records(), tmp_path)


def test_a_negative_int4_of_an_unknown_type_keeps_its_value_as_a_byte(tmp_path: Path) -> None:
    array, quant = np.array([-3, -1, 2]).astype(KNOWN["int4"]), Quant(None, 0.5, 1, type_name="WEIRD")
    record = Record("in", 0, 0, "CONV_2D", Tensor.of("x", array, quant=quant))
    there_and_back(FORMS["bin integers"], FORMS["bin newer"], [record], tmp_path)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_is_said_to_be_refused_is(form: Form, tmp_path: Path) -> None:
    for record in hard_records():
        if not without_refused([record], form):
            with pytest.raises(SgsdumpError):
                FORMATS[form.format].write([record], tmp_path / "dump", form.variant)
            assert not (tmp_path / "dump").exists()


REAL = [
    "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin",
    "sigmastar/dumps/tiny_fixed_a_elim_dequant/sigma_outtensor_dump.bin",
    "sigmastar/dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin",
    "sigmastar/dumps/tiny_fixed_d_plain/sigma_outtensor_dump.bin",
    "sigmastar/dumps/tiny_fixed_g_plain_string/sigma_outtensor_dump.bin",
    "sigmastar/dumps/tiny_fixed_e_elim_dequant_string/sigma_outtensor_dump.bin",
    "sigmastar/newstyle/float_new.bin",
    "sigmastar/newstyle/fixed_new.bin",
    "ascend/atb_dump_tree/all_f0/atb_dump_data/data/0_4711/0",
    "ascend/atb_dump_tree/append",
    "ascend/atb_dump_tree/stats/atb_dump_data/data/0_4711/1",
    "ascend/ge_dump/compare/my",
    "ascend/ge_dump/overflow/dump",
    "ascend/ge_dump/schema_written/dump",
    "ascend/nano_dump",
]


@pytest.mark.parametrize("name", REAL)
def test_genuine_dumps_into_every_format(name: str, shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / name)
    for number, form in enumerate(FORMS.values()):
        there = converted(dump.records, form, tmp_path / f"{number}")
        converted(there, FORMS["npz"], tmp_path / f"{number}.npz")


def test_a_pipelines_dump_into_every_format(tmp_path: Path) -> None:
    run_pipeline(tmp_path / "run")
    dump = open_dump(tmp_path / "run")
    assert dump.format == "dump_info_dir" and len(dump.outputs) == 4
    for number, form in enumerate(FORMS.values()):
        there = converted(dump.records, form, tmp_path / f"{number}")
        converted(there, FORMS["dump_info_dir"], tmp_path / f"{number} again")
