"""The text files that the SDK's own scripts (``tools/``) leave.

Tensor values, as dump_debug.py prints them: the name, then 16 values to a row.

Network outputs of the simulator for ``-c Unknown``, in ``output/unknown_MODEL_IMAGE.txt``, 12 values to a row; outputs
follow one another, 4-D ones as NHWC. The SDK's fixed simulator adds the padded shape and prints padded values unless
--skip_garbage is given; ours are never padded (docs/formats/sigmastar.md#simulator-text-output)::

    NAME Tensor:
    {
    tensor dim:4,<TAB>Original shape:[1 5 6 24]
    tensor data:
    -1.528718  4.492547  1.551402
    }

The folder of auto_dump_debug.sh's report. The log's first line names a folder, the others are the layers
(``reports/comparison/sdk.py``; docs/formats/sigmastar.md#split-dumps)::

    Undefined_benchmark.bin_DumpDebug_out/benchmark.bin_doAnalyzeRmse_run.log
    Undefined_benchmark.bin_DumpDebug_out_backup_at_20240131-120000/           an older one, renamed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, hint
from sgsdump.files.atomic_write import make_folder, replace_text, replacing, set_aside
from sgsdump.files.names import fitting, safe
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.stages import last_stage
from sgsdump.tensors.types import to_nhwc

PER_ROW = 16
OUTPUTS_PER_ROW = 12
CHUNK = 4096 * PER_ROW


def write_values(record: Record, path: Path) -> None:
    """Write ``NAME``, then rows of ``%.6f`` and two blanks. Raises ValuesError for integers of unknown scale."""
    values = record.tensor.real().reshape(-1)
    with replacing(path) as file:
        file.write(f"{record.name}\n".encode("utf-8", "surrogateescape"))
        for start in range(0, values.size, CHUNK):
            file.write(rows(values[start : start + CHUNK], PER_ROW).encode())


def rows(values: np.ndarray, per_row: int) -> str:
    """``%.6f`` and two blanks each, ``per_row`` to a line; the last line may be shorter."""
    full, rest = divmod(values.size, per_row)
    form = "%.6f  "
    return ((form * per_row + "\n") * full + (form * rest + "\n" if rest else "")) % tuple(values.tolist())


def find(dump: Dump, name: str) -> Record:
    """The first output of this name, else the network's input; a Caffe blob that no tensor is called is its last stage.

    Raises ConfigError, with near misses, for none.
    """
    variables = [record for record in dump.records if not record.constant]
    names = list(dict.fromkeys(record.name for record in variables))
    stage = name if name in names else last_stage(name, names)
    for io in ("out", "in"):
        for record in variables:
            if (record.io, record.name) == (io, stage):
                return record
    raise ConfigError(f"no tensor {name!r} in {dump.path or 'the dump'}{hint(name, names)}")


def write_pair(name: str, *targets: tuple[Dump, Path]) -> Sequence[Dump]:
    """Write the tensor ``name`` of each dump to the path beside it; returns dumps of that one tensor."""
    records = [(dump, find(dump, name), path) for dump, path in targets]
    for _, record, path in records:
        write_values(record, path)
    return [Dump([record], dump.format, dump.variant, dump.path) for dump, record, _ in records]


def write_outputs(outputs: Mapping[str, np.ndarray], model: Path, image: str, folder: Path = Path("output")) -> Path:
    """Write the outputs of one run; ``image`` names the input, several by commas. Returns the file."""
    inputs = "_".join(Path(name).name for name in image.split(","))
    path = make_folder(folder) / fitting(safe(f"unknown_{model.name}_{inputs}"), ".txt")
    with replacing(path) as file:
        for name, array in outputs.items():
            values = to_nhwc(array)
            shape = " ".join(map(str, values.shape))
            head = f"{name} Tensor:\n{{\ntensor dim:{values.ndim},\tOriginal shape:[{shape}]\ntensor data:\n"
            file.write(head.encode("utf-8", "surrogateescape"))
            flat = values.reshape(-1)
            step = CHUNK - CHUNK % OUTPUTS_PER_ROW
            for start in range(0, flat.size, step):
                file.write(rows(flat[start : start + step], OUTPUTS_PER_ROW).encode())
            file.write(b"}\n")
    return path


def new_folder(name: str, category: str = "Undefined") -> Path:
    """Make the folder of a benchmark file or a model called ``name``, here; an older one is set aside as its backup."""
    folder = Path.cwd() / f"{category}_{name}_DumpDebug_out"
    set_aside(folder, mark="_backup_at_", date=datetime.now())
    return make_folder(folder)


def write_log(comparison: Comparison, name: str, folder: Path, lines: str = "sdk_lines") -> Path:
    """Write ``NAME_doAnalyzeRmse_run.log`` into ``folder``: the line of a folder's name, then one line per layer.

    lines  the report that gives these: ``sdk_lines`` as newer scripts print them, ``sdk_table`` as the manual shows.
    """
    log = folder / f"{name}_doAnalyzeRmse_run.log"
    replace_text(log, f"{folder / 'genCompareLayer'}\n" + REPORTS[lines](comparison, DOCUMENTED))
    return log
