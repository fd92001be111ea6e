"""What our own writers make of small tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.seeds.seed import MOST_BYTES, Seed, content_of
from sgsdump import Quant, Record, Tensor
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import SgsdumpError
from sgsdump.tensors.dtypes import KNOWN


def _records() -> list[list[Record]]:
    """Sets of records, some of which every writer takes: plain ones; integers with scales; all types; odd ones."""

    def record(
        name: str, array: Any, io: str = "out", slot: int = 0, index: int = 0, constant: bool = False, **facts: Any
    ):
        tensor = Tensor.of(name, np.asarray(array), op_type="CONV_2D", **facts)
        return Record(io, slot, index, "CONV_2D", tensor, constant)  # type: ignore[arg-type]

    floats = np.linspace(-2, 2, 24, dtype=np.float32)
    picture = floats.reshape(1, 2, 3, 4)
    integers = np.arange(16, dtype=np.int16)
    per_channel = Quant(np.dtype(np.int8), np.array([0.5, 0.25], np.float32), 3, 0, True)
    plain = [
        record("conv1/Relu:0", picture, layout="NHWC"),
        record("Größe 2", floats, index=1),
        record("s", 0.5, index=2),
    ]
    scaled = [
        record("in", integers, "in", quant=Quant(integers.dtype, 0.5, exact=True)),
        record("w", integers, "in", 1, constant=True, quant=Quant(integers.dtype)),
        record("out", integers.reshape(1, 2, 2, 4), layout="NHWC", quant=Quant(integers.dtype, 0.1, 0)),
    ]
    types = [record(name, np.arange(3).astype(dtype), index=i) for i, (name, dtype) in enumerate(KNOWN.items())]
    odd = [
        record("x" * 300, floats),
        record("x", np.int8([[1], [2]]), index=1, quant=per_channel),
        record("", floats[:0]),
    ]
    return [plain, scaled, types, odd, [record("x", picture[..., 0])], [types[0]], plain[1:2]]


def written(folder: Path) -> Iterator[Seed]:
    """Of every format and variant that is written; ``folder`` takes the files."""
    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar import text_dump as text_variant

    variants: dict[str, tuple[Any, ...]] = {
        "sigmastar_bin": (binary.SIM, binary.FRAMEWORK, binary.TFLITE),
        "sigmastar_text": (text_variant.SIM, text_variant.LAYER, text_variant.TFLITE),
    }
    number = 0
    for name, format in FORMATS.items():
        if format.write is None:
            continue
        for variant in (None, *variants.get(name, ())):
            for records in _records():
                number += 1
                path = folder / f"{name}{number}"
                if seed := _try_written(name, records, path, variant):
                    yield seed
                    yield from _without_manifest(seed)


def _try_written(name: str, records: list[Record], path: Path, variant: Any) -> Seed | None:
    """What a writer makes of the records that it takes."""
    write = FORMATS[name].write
    assert write is not None
    refused = {id(lost.record) for lost in FORMATS[name].loses(records, variant) if lost.refused}
    try:
        write([record for record in records if id(record) not in refused], path, variant)
    except SgsdumpError:
        return None
    files = content_of(path)
    whole = path.is_file() or len(files) == sum(each.is_file() for each in path.rglob("*"))
    return Seed(name, path.name, files) if whole and sum(map(len, files.values())) <= 4 * MOST_BYTES else None


def _without_manifest(seed: Seed) -> Iterator[Seed]:
    """The folder as another program would have written it."""
    if "sgsdump.json" in seed.files:
        yield Seed(seed.format, f"foreign_{seed.name}", {n: d for n, d in seed.files.items() if n != "sgsdump.json"})
