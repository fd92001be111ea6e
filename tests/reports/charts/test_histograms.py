"""The pictures themselves: where their blue and red pixels are, and what every odd tensor looks like."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from sgsdump.comparison.compare import compare
from sgsdump.comparison.distribution import distributions
from sgsdump.dumps.dump import Dump, Record
from sgsdump.files.names import Taken
from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.layer_histogram import (
    PLOT,
    SIZE,
    file_name,
    plot_panel,
    save_contact_sheets,
    save_histogram,
)
from sgsdump.reports.charts.pair_sheets import save as save_pairs
from sgsdump.reports.charts.sheet import CELL, HEAD, MARGIN, PER_PAGE, copies_note
from sgsdump.reports.report import Context, report_of
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

LEFT, TOP, RIGHT, BOTTOM = PLOT


def layer(values, limits=None, name="conv", index=0):
    record = Record("out", 0, index, "CONV_2D", Tensor.of(name, np.asarray(values, np.float32)))
    (found,) = distributions(Dump([record]), {name: Range.of(*limits)} if limits else {})
    return found


def columns(path, colour):
    """Columns inside the plot area that hold a pixel of this colour."""
    with Image.open(path) as image:
        assert image.size == SIZE
        pixels = np.asarray(image.convert("RGB"))[TOP + 1 : BOTTOM, LEFT + 1 : RIGHT]
    return np.flatnonzero((pixels == colour).all(axis=2).any(axis=0)) + LEFT + 1


def expected_column(value, ends):
    """Independent of the module: the axis runs over all ends and 4 % more on either side."""
    low, high = min(ends), max(ends)
    share = (value - low + 0.04 * (high - low)) / (1.08 * (high - low))
    return LEFT + share * (RIGHT - LEFT)


def test_blue_where_the_values_are_and_red_at_the_limits(tmp_path):
    values = np.concatenate([np.linspace(-2, -1, 5000), np.linspace(3, 4, 5000)])
    path = save_histogram(layer(values, (-5, 6)), tmp_path / "layer.png")
    red, blue = columns(path, canvas.RED), columns(path, canvas.BLUE)
    ends = (-5, 6)
    expected = [expected_column(v, ends) for v in ends]
    assert {round(e) for e in expected} <= set(red)
    assert all(min(abs(column - e) for e in expected) <= 1.5 for column in red)
    inside = [(expected_column(a, ends) - 2, expected_column(b, ends) + 2) for a, b in ((-2, -1), (3, 4))]
    assert all(any(a <= column <= b for a, b in inside) for column in blue)
    assert len(blue) > 100


def test_columns_are_as_high_as_their_counts(tmp_path):
    found = layer([0.0] * 20 + [1.0] * 10 + [2.0] * 5, (-1, 3))
    panel = plot_panel(found)
    with Image.open(save_histogram(found, tmp_path / "layer.png")) as image:
        blue = (np.asarray(image.convert("RGB")) == canvas.BLUE).all(axis=2)[TOP:BOTTOM]
    heights = [blue[:, panel.column(v) - 4 : panel.column(v) + 5].sum(axis=0).max() for v in (0.0, 1.0, 2.0)]
    assert heights[0] / heights[1] == pytest.approx(2, rel=0.02)
    assert heights[0] / heights[2] == pytest.approx(4, rel=0.04)


def test_a_lone_value_beside_many_can_be_seen(tmp_path):
    path = save_histogram(layer([0.0] * 100_000 + [7.0], (0, 8)), tmp_path / "layer.png")
    assert any(abs(columns(path, canvas.BLUE) - expected_column(7.0, (0, 8))) <= 2)


def test_a_spike_at_the_minimum_is_not_hidden_by_its_line(tmp_path):
    found = layer([0.0] * 5000 + list(np.linspace(0.5, 4, 100)), (0, 4))
    with Image.open(save_histogram(found, tmp_path / "layer.png")) as image:
        pixels = np.asarray(image.convert("RGB"))
    at = plot_panel(found).column(0.0)
    height = (pixels[TOP:BOTTOM, at : at + 2] == canvas.BLUE).all(axis=2).sum(axis=0)
    assert (height > 0.8 * (BOTTOM - TOP)).all()
    # the limit is marked below the axis
    assert (pixels[BOTTOM + 1 : BOTTOM + 6, at] == canvas.RED).all(axis=1).sum() >= 4, (
        "the limit is marked below the axis"
    )


def test_the_line_of_a_limit_is_dashed(tmp_path):
    found = layer(np.linspace(0, 1, 100), (-1, 2))
    with Image.open(save_histogram(found, tmp_path / "layer.png")) as image:
        pixels = np.asarray(image.convert("RGB"))
    red = (pixels[TOP + 1 : BOTTOM, plot_panel(found).column(-1.0)] == canvas.RED).all(axis=1)
    assert red[:5].all() and not red[5:11].any() and red[11:17].all()  # 6 pixels each; the first is the frame's row


def test_one_upright_scale_for_a_page(tmp_path):
    """A tenth of a large layer's values in one column is as high as a tenth of a small one's."""
    small, large = ([0.0] * 9 * n + [1.0] * n for n in (5, 5000))
    (path,) = save_contact_sheets([layer(small), layer(large)], tmp_path)
    with Image.open(path) as image:
        blue = (np.asarray(image.convert("RGB"))[HEAD:] == canvas.BLUE).all(axis=2)
    # in each of the two cells the column furthest to the right
    tops = [blue[:, start : start + CELL[0]] for start in (MARGIN, MARGIN + CELL[0])]
    heights = [cell[:, np.flatnonzero(cell.any(axis=0))[-1]].sum() for cell in tops]
    assert heights[0] == heights[1] > 20


def test_the_title_tells_of_copies_only_if_there_are_some():
    assert copies_note(0) == "" and copies_note(2) == " (2 drawn with another layer: name = number)"


def test_without_a_range_there_is_no_red(tmp_path):
    path = save_histogram(layer(np.arange(100)), tmp_path / "layer.png")
    assert columns(path, canvas.BLUE).size and not columns(path, canvas.RED).size


def test_values_outside_the_range_are_shown_outside_it(tmp_path):
    blue = columns(save_histogram(layer(np.linspace(-10, 10, 1000), (-1, 1)), tmp_path / "layer.png"), canvas.BLUE)
    ends = (-10, 10)
    assert (blue < expected_column(-1, ends)).sum() > 100 and (blue > expected_column(1, ends)).sum() > 100


ODD = {
    "empty": [],
    "nan": [np.nan, np.nan],
    "inf": [np.inf, -np.inf, 1.0],
    "constant": [3.5] * 9,
    "zero": [0.0],
    "huge": [-3e38, 3e38],
    "tiny": [1e-45, 2e-45],
    "offset": [1e6, 1e6 + 0.0625],
}


@pytest.mark.parametrize("limits", [None, (-1, 1), (0, 0), (-1e308, 1e308), (3.5, 3.5)])
@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_still_give_a_picture(tmp_path, kind, limits):
    found = layer(ODD[kind], limits, kind)
    path = save_histogram(found, tmp_path / "layer.png")
    assert bool(columns(path, canvas.BLUE).size) == bool(found.stats.finite) or limits is not None
    assert bool(columns(path, canvas.RED).size) == (limits is not None)
    assert save_contact_sheets([found], tmp_path)[0].is_file()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("block/dw", "3.block_dw.png"),
        ("../../etc/passwd", "3..._.._etc_passwd.png"),
        ('a\\b:c*d?e<f>g|h"i\n\x00', "3.a_b_c_d_e_f_g_h_i__.png"),
        ("", "3..png"),
        ("层" * 100, "3." + "层" * 50 + ".png"),
        ("bad\udcff", "3.bad_.png"),
    ],
)
def test_file_names(name, expected):
    assert file_name(layer([1], name=name, index=3), Taken()) == expected


def test_hostile_names_stay_inside_and_apart(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    names = ["../up", "/root", "a/b", "a_b", "a:b", "..", "$x_1$", "x" * 5000, "bad\udcff\n", "CON"]
    taken = Taken()
    for name in names:
        found = layer([1, 2, 3], (0, 4), name)
        save_histogram(found, folder / file_name(found, taken))
    assert [p.name for p in tmp_path.iterdir()] == ["inside"]
    assert len(list(folder.iterdir())) == len(names)


def has(image, colour):
    return bool((np.asarray(image.convert("RGB")) == colour).all(axis=2).any())


def test_contact_sheet_frames_what_needs_a_look(tmp_path):
    fine = layer(np.linspace(-1, 1, 100), (-1, 1))
    (path,) = save_contact_sheets([fine] * 3, tmp_path)
    with Image.open(path) as image:
        calm = np.asarray(image.convert("RGB"))[HEAD:]
    assert not (calm == canvas.ORANGE).all(axis=2).any() and (calm == canvas.BLUE).all(axis=2).any()
    clipped = layer(np.linspace(-1, 1, 100), (-0.5, 0.5))
    (path,) = save_contact_sheets([fine, fine, clipped], tmp_path)
    with Image.open(path) as image:
        framed = (np.asarray(image.convert("RGB"))[HEAD:] == canvas.ORANGE).all(axis=2)
    rows = np.flatnonzero(framed.any(axis=1))
    assert rows.size and rows.max() < framed.shape[0] / 2, "the clipped layer comes first"
    assert np.flatnonzero(framed.any(axis=0)).min() < 30


def test_a_page_of_few_columns_is_as_wide_as_its_legends(tmp_path):
    (path,) = save_contact_sheets([layer(np.linspace(-1, 1, 100))], tmp_path)
    compared = compare(Dump([_record([1, 2])]), Dump([_record([1, 2])]), details=True)
    for title in ("fixed.bin against float.bin " * 2, "long " * 500):
        (tmp_path / str(len(title))).mkdir()
        (other,) = save_pairs(replace(report_of(compared), title=title), tmp_path / str(len(title)))
        for page in (path, other):
            with Image.open(page) as image:
                head = np.asarray(image.convert("L"))[:HEAD]
            assert (head < 128).any() and (head[:, -MARGIN:] == 255).all() and head.shape[1] <= 8 * CELL[0] + 2 * MARGIN


@pytest.mark.parametrize("limits", [(-0.28, 6), (1, 2), None])
def test_the_numbers_below_a_small_plot_are_the_ends_of_its_range(limits, tmp_path, monkeypatch):
    """Not those of the axis, which reaches as far as the values do; without a range the values' own ends."""
    values = np.linspace(-12, 5, 1000)
    drawn, draw_text = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw,
        "text",
        lambda self, place, text, *args, **named: (drawn.append(text), draw_text(self, place, text, *args, **named)),
    )
    ends = [canvas.number(end, 3) for end in limits or (-12, 5)]
    save_contact_sheets([layer(values, limits)], tmp_path)
    assert [text for text in drawn if text in ends] == ends
    compared = compare(Dump([_record(values)]), Dump([_record(values)]), details=True)
    drawn.clear()
    save_pairs(report_of(compared, context=Context(ranges={"conv": Range.of(*limits)} if limits else {})), tmp_path)
    below = [text for text in drawn if re.fullmatch("−?[0-9.]+", text)]
    if limits:
        assert below == ends
    else:
        assert [float(text.replace("−", "-")) for text in below] == pytest.approx([-12, 5], 0.1)


def _record(values):
    return Record("out", 0, 0, "CONV_2D", Tensor.of("conv", np.asarray(values, np.float32)))


def test_many_layers_take_several_pages(tmp_path):
    fine = layer(np.arange(5), (0, 4))
    pages = save_contact_sheets([fine] * (2 * PER_PAGE + 1), tmp_path)
    assert [p.name for p in pages] == ["overview.png", "overview_2.png", "overview_3.png"]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (-0.5, 0.5, ["−0.4", "−0.2", "0.0", "0.2", "0.4"]),
        (0, 1.2, ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        (1000, 1000.01, ["1000.000", "1000.002", "1000.004", "1000.006", "1000.008", "1000.010"]),
        (0, 5e30, ["0", "1e+30", "2e+30", "3e+30", "4e+30", "5e+30"]),
    ],
)
def test_ticks(low, high, labels):
    assert [label for _, label in canvas.ticks(low, high, 5)] == labels


def test_percent_never_rounds_to_nothing_or_to_all():
    assert [canvas.percent(p, 100_000) for p in (0, 1, 500, 99_999, 100_000)] == [
        "0 %",
        "under 0.01 %",
        "0.5 %",
        "over 99.9 %",
        "100 %",
    ]
