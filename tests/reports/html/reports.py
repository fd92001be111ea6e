"""Reports for the tests: of hostile names, of many layers, and of nothing."""

import numpy as np

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.report import Context, Plan, Tradeoff, report_of
from sgsdump.reports.verdict import Step
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=alert(1)>",
    "</style><h1 id=evil>",
    "\"quotes\" 'and' `ticks` {{ 7 * 7 }} ${1}",
    "\u202eright to left\u2066\u200b",
    "名前/é/Ω",
    "line\u2028break\x00\x1b[31m",
    "bytes\udcff",
    "&lt;b&gt; &amp;",
    "long" * 125,
)


def compared(names, broken=()):
    """A chain of layers whose error grows, NaN in those of ``broken``; and one layer that only the benchmark has."""
    random = np.random.default_rng(0)
    sides = ([], [])
    for index, name in enumerate(names):
        benchmark = random.normal(size=(1, 4, 5, 6)).astype(np.float32)
        sample = benchmark + random.normal(size=benchmark.shape).astype(np.float32) * np.float32(0.004 * (index + 1))
        if index in broken:
            sample[0, 0, 0, 0] = np.nan
        for records, values in zip(sides, (sample, benchmark)):
            op_type = ("Conv", "Relu")[index % 2]
            if index:
                records.append(Record("in", 0, index, op_type, records[-1].tensor))
            records.append(Record("out", 0, index, op_type, Tensor.of(name, values, layout="NCHW")))
    sides[1].append(Record("out", 0, len(names), "Softmax", Tensor.of("<i>alone</i>", np.ones(3, np.float32))))
    sample, benchmark = map(Dump, sides)
    return compare(sample, benchmark, details=True), sample, benchmark


def report(names, broken=(), steps=None, **further):
    comparison, sample, benchmark = compared(names, broken)
    ranges = {name: Range.of(-2.0, 2.5) for name in names}
    context = Context(ranges=ranges, sample=sample, benchmark=benchmark, **further)
    return report_of(comparison, context=context, steps=steps)


def tradeoff():
    plans = (
        Plan("INT8", 0.5, 0.2),
        Plan("0.7", 0.68, 0.01, 0.7, "[CONV_CONFIG]\ntensor_arrays='a,b';"),
        Plan("INT16", 1.0, 1e-5, None, "[CONV_CONFIG]\ntensor_arrays='every';"),
    )
    tried = ((0.5, 0.2), (0.6, 0.3), (0.6, 0.05), (0.68, 0.01), (0.9, 0.02), (1.0, 1e-5))
    return Tradeoff(tried, plans, plans[1])


def hostile():
    steps = [Step("Paste </script><script>this", "[CONV_CONFIG]\ntensor_arrays='<b>';")]
    return report(HOSTILE, {3}, title="<title>&", assumptions=["<i>assumed</i>"], steps=steps)
