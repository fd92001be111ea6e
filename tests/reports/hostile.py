"""Comparisons for the tests of reports: names that would be markup, commands or several lines if they were not text,
and values that are no numbers."""

import numpy as np

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

NAMES = (
    "plain",
    "<script>alert(1)</script>",
    "</style><h1>x",
    "\"double\" 'single' `back` ``two``",
    "a|b\\|c\\",
    "[link](https://example.org) *bold* _em_ # @user #12",
    "\u202eright to left\u2066\u200b",
    "名前/é/Ω",
    "two\nlines\r\x00\x1b[31m\x7f",
    "a\u2028b\ufffe",
    "bytes\udcff",
    "&lt;b&gt; &amp; ]]>",
    "=1+1",
    " blanks ",
    "long" * 125,
)


def comparison(names=NAMES, **options):
    """A layer of each name, its error growing; NaN in the sixth, Inf in the seventh, the benchmark of the eighth all
    zeros. One layer more on each side, of hostile names too, and one whose sizes differ."""
    random = np.random.default_rng(0)
    sides = ([], [])
    for index, name in enumerate(names):
        benchmark = random.normal(size=(1, 4, 5, 6)).astype(np.float32)
        sample = benchmark + random.normal(size=benchmark.shape).astype(np.float32) * np.float32(10.0 ** (index - 9))
        sample[0, 0, 0, 0] = {5: np.nan, 6: np.inf}.get(index, sample[0, 0, 0, 0])
        benchmark *= index != 7
        for records, values in zip(sides, (sample, benchmark)):
            records.append(Record("out", 0, index, f"Op<{index}>|`", Tensor.of(name, values)))
    sides[0].append(Record("out", 0, 90, "<i>", Tensor.of("mine|<b>`", np.ones(3, np.float32))))
    sides[1].append(Record("out", 0, 91, "<i>", Tensor.of("yours|<b>`", np.ones(3, np.float32))))
    for records, count in zip(sides, (3, 4)):
        records.append(Record("out", 0, 92, "<i>", Tensor.of("other size|<b>`", np.ones(count, np.float32))))
    return compare(Dump(sides[0]), Dump(sides[1]), **options)
