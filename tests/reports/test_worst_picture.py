"""What the outputs say on the picture that is furthest off."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from small_nets import model, node

from sgsdump.fixedpoint.quantisation.float_model import first_picture
from sgsdump.fixedpoint.reports.notebook import show_diagnosed
from sgsdump.reports.html.document import render
from sgsdump.reports.report import View
from sgsdump.reports.worst_picture import worst_picture
from sgsdump.sidecars.input_config import InputConfig, ModelInput

from .html.reports import compared, report

FLOAT = np.float32([[0.1, 4, 3, -1, 2, 0]])
FIXED = np.float32([[0, 3, 5, -1, 0, 1]])


def test_the_largest_of_both_models_side_by_side():
    found = worst_picture("cat.jpg", {"prob": FLOAT}, {"prob": FIXED})
    assert found is not None and not found.agrees
    assert [(one.place, one.benchmark, one.sample) for one in found.said] == [
        ("1", 4, 3),
        ("2", 3, 5),
        ("4", 2, 0),
        ("5", 0, 1),
    ]
    assert [one.first for one in found.said] == [(True, False), (False, True), (False, False), (False, False)]
    assert worst_picture("cat.jpg", {"prob": FLOAT}, {"prob": FLOAT + 1}).agrees


def test_places_of_several_axes():
    values = np.zeros((1, 2, 1, 5), np.float32)
    values[0, 1, 0, 3] = 7
    found = worst_picture("x", {"map": values}, {"map": values})
    assert found.said[0].place == "1, 0, 3"


@pytest.mark.parametrize(
    ("shape", "shown"), [((28, 28), (112, 112)), ((300, 600, 3), (256, 128)), ((5, 60), (120, 10))]
)
def test_the_picture_is_a_small_file_in_the_page(shape, shown):
    pixels = np.full(shape, 40, np.uint8)
    pixels[:, shape[1] // 2 :] = 200
    found = worst_picture("<cat>.jpg", {"prob": FLOAT}, {"prob": FIXED}, pixels)
    assert (found.image.width, found.image.height) == shown
    image = Image.open(io.BytesIO(base64.b64decode(found.image.source.partition(",")[2])))
    assert image.format == ("PNG" if max(shape) < 96 else "JPEG") and len(found.image.source) < 20_000
    seen = np.asarray(image.convert("RGB"))
    assert np.abs(seen[-1, 0].astype(int) - 40).max() < 4 and np.abs(seen[0, -1].astype(int) - 200).max() < 4
    text = render(replace(report(["a"]), view=View(worst=found)))
    assert 'alt="Image &lt;cat&gt;.jpg"' in text and "img-src data:" in text
    fragment = show_diagnosed((replace(report(["a"]), view=View(worst=found)), compared(["a"])[0]))
    assert found.image.source in fragment and "<td>prob</td>" in fragment and "<cat>" not in fragment
    text = render(replace(report(["a"]), view=View(worst=replace(found, image=None))))
    assert "Input with the largest error: <bdi>&lt;cat&gt;.jpg" in text and "<img" not in text


@pytest.mark.parametrize("order", ["RGB", "BGR"])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 4, 5, 3)])
def test_the_picture_is_as_people_see_it(order, shape):
    net = model([node("Relu", ["data"], "y")], {}, {"data": shape}, ["y"])
    config = InputConfig((ModelInput("data", order, order),))
    raw = np.zeros(shape, np.float32)
    raw[(0, order.index("R")) if shape[1] == 3 else (0, ..., order.index("R"))] = 200.4
    pixels = first_picture(net, config, {"data"}, {"data": raw})
    assert pixels.shape == (4, 5, 3) and pixels[0, 0].tolist() == [200, 0, 0]
    assert first_picture(net, config, set(), {"data": raw}) is None


def test_what_cannot_be_shown():
    assert worst_picture("x", {"a": FLOAT}, {"b": FLOAT}) is None
    assert worst_picture("x", {"a": FLOAT}, {"a": FLOAT[:, :2]}) is None
    assert worst_picture("x", {"a": FLOAT}, {"a": FLOAT * np.nan}) is None
    assert worst_picture("x", {"a": np.zeros((1 << 20) + 1)}, {"a": np.zeros((1 << 20) + 1)}) is None


def test_it_stands_on_the_page_escaped():
    found = worst_picture("<b>cat</b>.jpg", {"<i>prob": FLOAT}, {"<i>prob": FIXED})
    text = render(replace(report(["a"]), view=View(worst=found)))
    assert "&lt;b&gt;cat&lt;/b&gt;.jpg" in text and "&lt;i&gt;prob" in text and "<b>cat" not in text
    assert "<strong>4.000000</strong>" in text and "<strong>5.000000</strong>" in text
    assert "model has the largest value of an output at another index" in text
    assert "worst-title" in text and "worst-title" not in render(report(["a"]))
