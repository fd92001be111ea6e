"""Compare a dump under test with a reference dump: MSE, COS and RMSE of every layer, and a verdict.

The sample is the run under test (the fixed model), the benchmark the reference (the float or original model).
RMSE is what the SDK calls so: sum |a-b| / sum |b|, a relative error. Exit status: 0 within the thresholds or none
given, 1 past a threshold you gave (NaN, Inf and layers that could not be compared count as past), 2 on trouble.
Thresholds are --min-cos, --max-rmse, --max-mse, and --limit for any other metric.

With --golden a third run judges both: the sample passes where its diff3 error against golden is at most the input tag
times the benchmark's. This prints compare_result.log as the SDAA dump tools write it; exit status 1 when a tensor does
not pass. CSV and JSON give every layer a verdict: pass, warn (types differ, values left out of a metric, another
layout …), fail or not comparable.

Trees of several runs (steps, ranks, graphs) are compared run by run, a table each, and the first run that differs is
named; --csv report.csv then writes report.step0-rank0.csv and so on, and so do the other files. --step, --rank or
TREE@step=3 choose single runs.

The dump of a watcher (dump_scene: watcher) is compared alone: each watched output as it was after itself and after each
listed operator. The operators that changed it are named; exit status 1 where there is one.

On a terminal the table is as wide as the window, with bars and colours (NO_COLOR switches them off); a pipe gets the
SDK's lines. --sort, --top and --only-bad choose which layers the table, these lines and --markdown list (a pipe gets
all of them with --golden); the other files hold every layer.

With --scheduler the layers are measured on a Dask cluster (pip install 'sgsdump[cluster]') whose workers read both
dumps themselves: the file system is shared, every machine has the dumps under the same paths. The result is the same.

examples:
  sgsdump compare fixed.bin float.bin
  sgsdump compare fixed.bin float.bin --min-cos 0.99 --max-rmse 0.1 --csv report.csv
  sgsdump compare fixed.bin float.bin --top 10
  sgsdump compare fixed.bin float.bin --max-rmse 0.1 --junit layers.xml --markdown summary.md
  sgsdump compare fixed.bin float.bin --plots pictures_of_it --tensor-min-max log/tensor_min_max.txt
  sgsdump compare fixed.bin float.bin --annotate net.onnx net_errors.onnx
  sgsdump compare integers.bin float.bin --tensor-min-max log/tensor_min_max.txt
  sgsdump compare padded.bin float.bin --parse-net parse_net.txt
  sgsdump compare dump_a/ dump_b/ --step 3
  sgsdump compare watcher_dump/
  sgsdump compare caffe.bin onnx.bin --match-by-value --write-name-map names.json
  sgsdump compare fixed.bin onnx.bin --name-map names.json
  sgsdump compare npu_dump/ torch_dump/ --name-map mindie_torch_op_mapping.json --name-map mindie_rt_op_mapping.json
  sgsdump compare npu_dump/ onnx_dump/ --name-map ge_graph.json --name-rule '^/=' --name-rule '/=.'
  sgsdump compare fixed.bin float.bin --metrics diff2,MaxRelativeError,mae
  sgsdump compare fixed.bin float.bin --limit diff2=0.05,CosineSimilarity=0.99
  sgsdump compare fixed.bin float.bin --limit 'sqnr=20,conv1:diff2=0.1,head*:cos=0.95' --exclude 'data*'
  sgsdump compare fixed.bin float.bin --metric angle.py:angle --limit angle=0.99
  sgsdump compare fixed.bin float.bin --compatible msaccucmp
  sgsdump compare fixed/ float/ --runs --metrics sqnr
  sgsdump compare fixed.bin int16.bin --golden float.bin --input-tag 5
  sgsdump compare /shared/fixed.bin /shared/float.bin --scheduler tcp://host:8786
"""

from __future__ import annotations

import argparse

from sgsdump.commands.compare.options import MODES, WATCHER, add_arguments, options_of

__all__ = ["MODES", "add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.compare.modes import compare, compare_watched
    from sgsdump.files.atomic_write import together

    if args.benchmark is None:
        MODES.check(WATCHER, MODES.given(args))
        return compare_watched(args.sample, args.step, args.rank)
    with together():
        return compare(options_of(args))
