"""What results show in a notebook: everything is text, of bounded size, and the rooms below know no report."""

import base64
import io
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import sgsdump
from sgsdump import plugins
from sgsdump.comparison.compare import compare
from sgsdump.comparison.distribution import distributions
from sgsdump.comparison.metrics import METRICS
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import Range

from .hostile import NAMES, comparison

FAIL, LIMIT = (214, 39, 40), (214, 39, 40)  # the colours of a bad layer's bar and of a range's ends
LINES = ((360, 361), (600, 601))  # their columns, for ends at a quarter of the values' on 960 pixels


def dump(names, factor=1.0):
    values = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4) * np.float32(factor)
    return Dump([Record("out", 0, index, "Conv", Tensor.of(name, values)) for index, name in enumerate(names)])


def drawn(html):
    """The pixels of the picture in it: red, green, blue, and how opaque."""
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return np.asarray(image.convert("RGBA"))


def body(html):
    """Without the style, which is the same in all."""
    assert html.startswith('<div class="sgsdump"><style>') and html.endswith("</div>")
    return html.partition("</style>")[2]


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, "20 worst of 21 layers")])
def test_a_comparison_shows_the_worst_twenty_rows(count, more):
    names = [f"t{index}" for index in range(count)]
    shown = body(compare(dump(names, 1.5), dump(names))._repr_html_())
    assert shown.count("<tr>") == 21 and shown.count(">t") >= 20 and more in shown
    assert ("past" not in shown and "20 of 20 layers differ" in shown) or count == 21


def test_a_comparison_says_what_was_not_compared():
    names = [f"t{index}" for index in range(30)]
    shown = body(compare(dump([]), dump(names))._repr_html_())
    assert "Not compared: 30" in shown and "and 25 more" in shown and shown.count("no output of this name") == 1
    assert "<table" not in shown and "<img" not in shown


def test_of_many_layers_a_bar_is_the_worst_of_its_neighbours():
    names = [f"t{index}" for index in range(1000)]
    sample, benchmark = dump(names), dump(names)
    bad = Tensor.of("t501", benchmark["t501"].real() * np.float32(3))
    records = [Record("out", 0, i, "Conv", bad if i == 501 else r.tensor) for i, r in enumerate(sample.records)]
    picture = drawn(compare(Dump(records), benchmark)._repr_html_())
    red = (picture == (*FAIL, 255)).all(axis=2)
    assert picture.shape == (160, 1200, 4) and (picture[..., 3] > 0).any(axis=0).sum() == red.any(axis=0).sum()
    left, right = 501 // 5 * 6, 501 // 5 * 6 + 5  # 200 bars, 6 pixels apart, of neighbours by fives
    assert red[:, left : right - 1].all() and not red[:, :left].any() and not red[:, right:].any()


def test_names_are_text_and_the_size_is_bounded():
    shown = comparison([*NAMES, "x" * 100_000], metrics=list(METRICS))._repr_html_()
    assert len(shown) < 150_000 and shown.encode() and "\u202e" not in shown and "\x1b" not in shown
    assert not {"<script", "<h1", "<b>", "<i>"} & set(re.findall(r"<\w+>?", body(shown)))
    hostile = dump([*NAMES, "x" * 100_000])
    for result in (hostile, *(hostile[name] for name in hostile), *distributions(hostile, {})):
        html = result._repr_html_()
        assert len(html) < 20_000 and "<script" not in html and "<h1" not in html and "\u202e" not in html


def test_a_dump_is_its_short_table():
    shown = body(dump([f"t{index}" for index in range(25)])._repr_html_())
    assert "25 tensors" in shown and shown.count("<tr>") == 21 and "… 5 more" in shown
    assert "<table" not in body(Dump([])._repr_html_())


def _quantised(name, dtype, scale, zero_point=0, axis=None, exact=True):
    quant = Quant(np.dtype(dtype), scale, zero_point, axis, exact)
    return Tensor.of(name, np.arange(4).reshape(2, 2).astype(dtype), quant=quant)


@pytest.mark.parametrize(
    ("tensor", "said", "chart"),
    [
        (Tensor.of("f", np.linspace(-1, 1, 100, dtype=np.float32), op_type="Conv", layout="NHWC"), "-1.000000", True),
        (Tensor.of("nan", np.array([np.nan, np.inf, 1, 2], np.float32)), "<dt>nan</dt><dd>1</dd>", True),
        (Tensor.of("no", np.array([np.nan], np.float32)), "<dt>nan</dt>", False),
        (Tensor.of("one", np.ones(5, np.float32)), "1.000000", True),
        (Tensor.of("empty", np.ones(0, np.float32)), "<dd>0</dd>", False),
        (Tensor.of("text", np.array([b"a"])), "are not numbers", False),
        (Tensor.of_statistics(TensorInfo("s", (4,), np.dtype("f4")), Statistics(0.0, 2.5)), "2.500000", False),
    ],
    ids=lambda value: value.name if isinstance(value, Tensor) else "",
)
def test_a_tensor(tensor, said, chart):
    shown = body(tensor._repr_html_())
    assert f"Tensor {tensor.name}" in shown and said in shown and ("<img" in shown) is chart


@pytest.mark.parametrize(
    ("scale", "axis", "said"), [(0.5, None, "0.5"), ((0.5, 0.25), 0, "2 scales"), ((0.5,), 0, "1 scales")]
)
def test_one_scale_is_shown_and_several_are_counted(scale, axis, said):
    scale = np.array(scale) if isinstance(scale, tuple) else scale
    assert f"<dt>scale</dt><dd>{said}</dd>" in body(_quantised("q", "int8", scale, axis=axis)._repr_html_())


def test_a_large_tensor_is_not_read():
    def load():
        raise AssertionError("it was read")

    tensor = Tensor(TensorInfo("large", (1 << 12, 1 << 12), np.dtype("f4")), load)
    assert "too many values" in tensor._repr_html_()


def test_a_closed_dump_says_so():
    closed = dump(["a"])
    tensor = closed["a"]
    closed.close()
    assert "was closed" in tensor._repr_html_()


def test_a_distribution_shows_its_range():
    (layer,) = distributions(dump(["a"]), {"a": Range.of(-0.25, 0.25)})
    shown = body(layer._repr_html_())
    assert "This layer is clipped." in shown
    red = (drawn(shown) == (*LIMIT, 255)).all(axis=2).any(axis=0)
    assert np.flatnonzero(red).tolist() == [*LINES[0], *LINES[1]]
    assert "-0.250000 to 0.250000, 18 values outside" in shown
    (unknown,) = distributions(dump(["a"]), {})
    assert not (drawn(unknown._repr_html_()) == (*LIMIT, 255)).all(axis=2).any()


def test_a_histogram_has_the_counts_of_numpy():
    """On an axis from half a value to 1.4 times the highest column, logarithmic."""
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    picture = drawn(Tensor.of("x", values)._repr_html_())
    height, width, _ = picture.shape
    tops = (picture[:, np.arange(128) * width // 128 + 4, 3] > 0).sum(axis=0)
    counts, _ = np.histogram(values, 128)
    expected = np.log(np.maximum(counts, 0.5) / 0.5) / math.log(counts.max() * 1.4 / 0.5) * height
    assert (height, width) == (180, 960) and np.abs(tops - expected).max() <= 1


def test_the_rooms_below_import_no_report():
    code = """
import sys, numpy as np, sgsdump
tensor = sgsdump.Tensor.of("x", np.ones(3)); sgsdump.Dump([]); sgsdump.Comparison
print([name for name in sys.modules if name.startswith("sgsdump.reports")])
tensor._repr_html_()
print([name for name in sys.modules if name == "sgsdump.reports.notebook"], "jinja2" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n['sgsdump.reports.notebook'] False\n", done.stderr


def test_a_kind_that_nobody_shows_is_left_to_its_repr(monkeypatch):
    monkeypatch.setattr(plugins, "_CORE", plugins.Plugin())
    assert sgsdump.Tensor.of("x", np.ones(3))._repr_html_() is None
