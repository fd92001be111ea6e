"""Pictures compared on a cluster: made here and sent, so that its machines need no files of the user's.

Workers are sent both models once. What comes back of a picture is its comparison, with records that have lost their
values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sgsdump.comparison.comparison import Comparison
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ValuesError
from sgsdump.executors.workers.task_pool import Workers, run_tasks
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.diagnosis.compared_pictures import Compared, PictureComparer
from sgsdump.quantisation.diagnosis.picture_pairs import PicturePair, PicturePairs
from sgsdump.quantisation.float_model import serialise
from sgsdump.tensors.tensor import Tensor

# A comparison, and the records of the sample and the benchmark.
_Sent = tuple[Comparison, list[Record], list[Record]]


def compared_on_cluster(
    float_model: Model, fixed_model: Model, pairs: PicturePairs, scheduler: str, progress: Progress = SILENT
) -> Iterator[Compared]:
    """The comparison on each picture, in their order. Raises what ``each_compared`` and ``run_tasks`` raise, and
    ModelError for a model over 2 GB."""
    given = tuple((serialise(model.proto), model.path) for model in (float_model, fixed_model))
    pictures = (pairs.make(index) for index in range(len(pairs)))
    for comparison, *records in run_tasks(_comparing, given, pictures, Workers(scheduler=scheduler), progress):
        yield Compared(comparison, *map(Dump, records))


def _comparing(float_file: tuple[bytes, Path], fixed_file: tuple[bytes, Path]) -> Callable[[PicturePair], _Sent]:
    float_model, fixed_model = (Model(ModelProto.FromString(data), path) for data, path in (float_file, fixed_file))
    comparer = PictureComparer(float_model, fixed_model, Path(tempfile.gettempdir()))
    return lambda picture: _without_values(comparer.compare(picture))


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
    raise ValuesError("the values of a picture that another machine ran are not kept")
