"""Comparison of the float and the fixed model on several images, layer by layer, locally or on a cluster.

The values of an image live in two unnamed files until they are compared; only sums, counts and histograms stay. The
file of a dump holds each tensor's values once, because the input of a consumer is the output of that name. Constants
are not copied. The file disappears with the dump and all its arrays; ``Dump.close`` releases the dump's own arrays.

For a cluster, images are prepared here and sent, so its machines need no user files. Workers receive both models once.
The comparison of an image comes back with records without values. The last image is compared here, because the report
shows its values.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from onnx import ModelProto

from sgsdump.comparison.compare import compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.merge import Compared, merge_each
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import OutputError, ValuesError
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.executors.workers.task_pool import Workers, run_tasks
from sgsdump.files.mapped import MappedFile, loader, map_open, write_array
from sgsdump.fixedpoint.quantisation.float_model import serialise
from sgsdump.fixedpoint.quantisation.simulation import Simulation, Simulator
from sgsdump.models.feeds.by_content import PicturePair, PicturePairs
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import NCHW, NHWC

# Size of a fixed model's file. Creating its sessions takes three times as long as a run, and they need about 15 times
# the memory of the file or of its weights.
KEPT_BYTES = 4 << 20
# A comparison, and the records of the sample and the benchmark.
_Sent = tuple[Comparison, list[Record], list[Record]]
_ALIGNED = 64


class PictureComparer:
    """Compares the fixed with the float model on one image after another.

    folder   for the values of the current image.
    details  include histograms and other data for the report page.

    Sessions of a fixed model above KEPT_BYTES are created for each image, because they would need most of the memory.
    """

    def __init__(self, float_model: Model, fixed_model: Model, folder: Path, details: bool = True):
        facts = read_facts(fixed_model)
        self._pictures = {name for name, tensor in facts.tensors.items() if tensor.picture} if facts else set()
        self._float = Simulator(float_model, keep_sessions=True)
        self._fixed = Simulator(fixed_model, keep_sessions=fixed_model.proto.ByteSize() <= KEPT_BYTES)
        self._folder, self._details = folder, details

    def compare(self, picture: PicturePair) -> Compared:
        """Return the comparison on one image."""
        benchmark = _dump(self._float.run(picture.feed), self._folder)
        sample = _dump(self._fixed.run(picture.fixed_feed(self._pictures)), self._folder)
        release_unused()
        return Compared(compare(sample, benchmark, details=self._details), sample, benchmark)


def each_compared(comparer: PictureComparer, pairs: PicturePairs) -> Iterator[Compared]:
    """Yield the comparison on each image in turn. Raises what making feeds and running the models raise."""
    return (comparer.compare(pairs.make(index)) for index in range(len(pairs)))


def over_all(results: Iterable[Compared], labels: Sequence[str], progress: Progress = SILENT) -> Compared:
    """Return the comparison over all images, from lazily computed comparisons of single images.

    The dumps of an image are closed before the next image runs; the dumps of the last image stay open for the report.
    """
    dumps: list[Dump] = []

    def compared() -> Iterator[tuple[str, Comparison]]:
        images = zip(labels, each(progress, results, "compare", "image", len(labels)))
        for number, (label, result) in enumerate(images, 1):
            dumps[:] = [result.sample, result.benchmark]
            yield label, result.comparison
            if number < len(labels):
                for dump in dumps:
                    dump.close()

    comparison = merge_each(compared())
    return Compared(comparison, dumps[0], dumps[1], labels[-1])


def _dump(simulation: Simulation, folder: Path) -> Dump:
    """Return a dump of all tensors in the model's own order of axes."""
    return spooled(map(_as_computed, simulation.records), folder)


def _as_computed(record: Record) -> Record:
    tensor = record.tensor
    if record.constant or tensor.layout != NHWC or tensor.ndim != 4:
        return record
    return replace(record, tensor=tensor.in_layout(NCHW))


def compared_on_cluster(
    float_model: Model,
    fixed_model: Model,
    pairs: PicturePairs,
    scheduler: str,
    folder: Path,
    progress: Progress = SILENT,
) -> Iterator[Compared]:
    """Yield the comparison on each image, in order.

    folder  for the values of the last image, which is compared on this machine; other dumps have no values.

    Raises what ``each_compared`` and ``run_tasks`` raise, and ModelError for a model over 2 GB.
    """
    files = tuple((serialise(model.proto), model.path) for model in (float_model, fixed_model))
    last = len(pairs) - 1
    pictures = (pairs.make(index) for index in range(last))
    for comparison, *records in run_tasks(_comparing, files, pictures, Workers(scheduler=scheduler), progress):
        yield Compared(comparison, Dump(records[0]), Dump(records[1]))
    yield PictureComparer(float_model, fixed_model, folder).compare(pairs.make(last))


def _comparing(float_file: tuple[bytes, Path], fixed_file: tuple[bytes, Path]) -> Callable[[PicturePair], _Sent]:
    float_model, fixed_model = (Model(ModelProto.FromString(data), path) for data, path in (float_file, fixed_file))
    comparer = PictureComparer(float_model, fixed_model, Path(tempfile.gettempdir()))

    def compared(picture: PicturePair) -> _Sent:
        of_picture = comparer.compare(picture)
        with of_picture.sample, of_picture.benchmark:
            return _without_values(of_picture)

    return compared


def _without_values(compared: Compared) -> _Sent:
    comparison = compared.comparison
    failed = [
        replace(one, pair=replace(one.pair, sample=_bare(one.pair.sample), benchmark=_bare(one.pair.benchmark)))
        for one in comparison.failed
    ]
    only = [
        tuple(replace(one, record=_bare(one.record)) for one in side)
        for side in (comparison.only_in_sample, comparison.only_in_benchmark)
    ]
    bare = replace(comparison, failed=tuple(failed), only_in_sample=only[0], only_in_benchmark=only[1])
    sample, benchmark = ([_bare(record) for record in dump.records] for dump in (compared.sample, compared.benchmark))
    return bare, sample, benchmark


def _bare(record: Record) -> Record:
    return replace(record, tensor=Tensor(record.tensor.info, _gone, record.tensor.statistics))


def _gone() -> np.ndarray:
    raise ValuesError("the values are not available, because another machine ran the model on this image")


def spooled(records: Iterable[Record], folder: Path) -> Dump:
    """Return a dump of these records with values in a file in ``folder``; each is written before the next is made.

    Raises OutputError if the file cannot be written.
    """
    offsets: dict[tuple[str, tuple[int, ...] | None, np.dtype], int] = {}
    kept: list[tuple[Record, int]] = []
    try:
        with TemporaryFile(dir=folder) as file:
            for record in records:
                if record.constant:
                    kept.append((record, 0))
                    continue
                info = record.tensor.info
                key = record.name, info.shape, info.dtype
                if key not in offsets:
                    array = record.tensor.stored_view()
                    info = replace(info, shape=array.shape, dtype=array.dtype)
                    key = record.name, info.shape, info.dtype
                    if key not in offsets:
                        offsets[key] = file.seek(-file.tell() % _ALIGNED, 1)
                        write_array(file, array)
                # do not keep the array itself
                kept.append((replace(record, tensor=Tensor(info, _nothing)), offsets[key]))
            file.flush()
            data = map_open(file.fileno()) if file.tell() else None
    except OSError as error:
        raise OutputError(f"cannot write the values of a run into {folder}: {error.strerror or error}") from error
    return Dump([record if record.constant else _read(record, data, offset) for record, offset in kept])


def _read(record: Record, data: MappedFile | None, offset: int) -> Record:
    info = record.tensor.info
    count = math.prod(info.shape or ())
    if data is None or not count:  # an empty file cannot be mapped, and a last tensor without values is not in the file
        return replace(record, tensor=Tensor(info, lambda: np.zeros(info.shape or (), info.dtype)))
    return replace(record, tensor=Tensor(info, loader(data, info.dtype, count, offset)))


def _nothing() -> np.ndarray:
    raise AssertionError("this record holds no values in memory; the values are stored in the file")
