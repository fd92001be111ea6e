"""``page()``: the page of a result in the frame of a notebook."""

import html
import re

import numpy as np

import sgsdump
from sgsdump import Dump, Record, Tensor


def sides():
    benchmark = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)
    sample = benchmark.copy()
    sample[0, 2] += 1
    return [
        Dump([Record("out", 0, i, "Conv", Tensor.of(f"</iframe>{i}", values, layout="NCHW")) for i in range(2)])
        for values in (sample, benchmark)
    ]


def test_the_frame_holds_the_page_and_nothing_escapes_from_it():
    page = sgsdump.compare(*sides(), details=True).page()
    shown = page._repr_html_()
    frame = re.fullmatch(r'<iframe sandbox="allow-scripts" srcdoc="([^"]*)" [^<>]*></iframe>', shown)
    assert frame and html.unescape(frame[1]) == page.text
    assert "allow-same-origin" not in shown and 'height="900"' in shown


def test_with_both_dumps_the_page_has_their_tensors(tmp_path):
    dumps = sides()
    comparison = sgsdump.compare(*dumps, details=True)
    assert 'id="tensor-0"' not in comparison.page().text
    page = comparison.page(*dumps, height=500)
    assert 'id="tensor-0"' in page.text and 'height="500"' in page._repr_html_()
    assert page.save(tmp_path / "page.html").read_text(encoding="utf-8") == page.text
