"""Time the HTML report of 500 layers: making its text, its size, and in Chromium its first paint and every use of it.

    python benchmarks/report.py [--short] [--layers 5000]

What is asked for is the floor: 3 MB, and a second for the first paint and for each use, from the event until the next
frame is painted; of several times the middle one counts. Chromium (Debian's chromium and chromium-driver, and selenium)
may be absent: then only text and size are there.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import Row, show

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.html.document import render
from sgsdump.reports.report import Context, Report, report_of
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

LAYERS, OPENINGS = 500, 3
LARGEST_MB, LONGEST = 3.0, 1.0
USES = {
    "select a layer": "document.querySelector('#selected .head button:last-child').click()",
    "sort": "document.querySelector(`th[data-key=${['cos', 'name', 'mse'][i % 3]}] button`).click()",
    "search": "const box = document.getElementById('search'); box.value = 'block' + i;"
    " box.dispatchEvent(new Event('input', { bubbles: true }))",
    "filter": "document.getElementById('rises').click()",
    "zoom": "document.getElementById(i % 2 ? 'zoom-all' : 'zoom-in').click()",
    "change the metric": "document.querySelectorAll('#metric button')[i % 4].click()",
    "walk by key": "document.getElementById('depth-chart').dispatchEvent(new KeyboardEvent('keydown',"
    " { key: 'ArrowLeft', bubbles: true }))",
}
TIMED = """
const done = arguments[arguments.length - 1], i = arguments[0], start = performance.now();
{ %s; }
requestAnimationFrame(() => setTimeout(() => done((performance.now() - start) / 1000)));
"""
PAINTED = "return performance.getEntriesByName('first-contentful-paint').map(e => e.startTime / 1000)[0]"
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def deep(count: int) -> Report:
    """Each layer with every chart there is: many values, as many channels and places as a report shows."""
    random = np.random.default_rng(0)
    benchmark = random.normal(size=(1, 64, 40, 40)).astype(np.float32)
    sample = benchmark + random.normal(scale=0.1, size=benchmark.shape).astype(np.float32)
    sides = [Dump([Record("out", 0, 0, "Conv", Tensor.of("one", v, layout="NCHW"))]) for v in (sample, benchmark)]
    one = report_of(compare(*sides, details=True), context=Context(ranges={"one": Range.of(-3.0, 3.0)}))
    names = [f"net/stage{i // 50}/block{i // 5}/conv{i}/Conv_output_0" for i in range(count)]
    errors = np.exp(random.normal(scale=0.3, size=count).cumsum() * 0.2) * 0.05
    layers = (
        replace(
            one.layers[0],
            name=name,
            index=i,
            figures=replace(
                one.layers[0].figures,
                rmse=float(errors[i]),
                rise=float(errors[i] - errors[i - 1]) if i else float(errors[i]),
            ),
            rises=bool(i and errors[i] > 1.1 * errors[i - 1]),
            verdict="fail" if errors[i] > 0.1 else "pass",
            sources=(names[i - 1],) if i else (),
        )
        for i, name in enumerate(names)
    )
    return replace(one, layers=tuple(layers))


def in_browser(page: Path, repeats: int) -> list[Row]:
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        chromium = None
    if not (chromium and driver):
        print("no chromium, chromedriver or selenium: the page is not opened")
        return []
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        opened = [opening(browser, page) for _ in range(OPENINGS)]
        rows = [row(what, median(times)) for what, times in zip(("first paint", "every chart"), zip(*opened))]
        for use, script in USES.items():
            times = [browser.execute_async_script(TIMED % script, i) for i in range(repeats)]
            rows.append(row(use, median(times)))
        return rows
    finally:
        browser.quit()


def opening(browser: Any, page: Path) -> tuple[float, float]:
    """Seconds until something is painted, and until everything is there."""
    browser.get("about:blank")
    browser.get(page.as_uri())
    return until(browser, PAINTED), until(browser, LOADED)


def until(browser: Any, script: str) -> float:
    """The entry is there a moment after the frame."""
    while not (seconds := browser.execute_script(script)):
        time.sleep(0.05)
    return float(seconds)


def row(what: str, seconds: float) -> Row:
    return Row(what, seconds, LONGEST, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="each use 4 times in place of 24")
    parser.add_argument("--layers", type=int, default=LAYERS, metavar="N", help="of the network (default: %(default)s)")
    options = parser.parse_args()
    repeats = 4 if options.short else 24
    report = deep(options.layers)
    start = time.process_time()
    text = render(report)
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(text, encoding="utf-8")
        rows = [
            row("making its text", seconds),
            Row("size", page.stat().st_size / 1e6, LARGEST_MB * max(options.layers / LAYERS, 1), 1.0, "MB"),
            *in_browser(page, repeats),
        ]
    show([replace(each, name=f"report of {options.layers} layers: {each.name}") for each in rows])


if __name__ == "__main__":
    main()
