"""Time the HTML report of 500 layers: making its text, its size, and in Chromium its first paint and every use.

    python benchmarks/report.py [--short] [--layers 5000]

The floor is the target: 3 MB, and one second for the first paint and for each use, from the event until the next
frame is painted; the median of several times counts. For the first paint, the zoom and the selection, further rows
compare the page with the same page without its drawing of the network, opened in turn; the aim is 1.5. Without
Chromium (Debian's chromium and chromium-driver, and selenium), only text and size are measured.
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
COMPARED = ("select a layer", "zoom", "walk by key")  # uses that both pages have
TIMES = 1.5  # aim: of the page without the network
USES = {
    "select a layer": "document.querySelector('#selected .head button:last-child').click()",
    "sort": "document.querySelector(`th[data-key=${['cos', 'name', 'mse'][i % 3]}] button`).click()",
    "search": "const box = document.getElementById('search'); box.value = 'block' + i;"
    " box.dispatchEvent(new Event('input', { bubbles: true }))",
    "filter": "document.getElementById('rises').click()",
    "zoom": "document.getElementById(i % 2 ? 'zoom-all' : 'zoom-in').click()",
    "change the metric": "document.querySelectorAll('#metric button')[i % 4].click()",
    "open or close a group": "document.getElementById('network-pane').dispatchEvent(new KeyboardEvent('keydown',"
    " { key: 'Enter', bubbles: true }))",
    "zoom the network": "document.getElementById(i % 2 ? 'network-in' : 'network-out').click()",
    "scroll the network": "document.getElementById('network-pane').scrollTop = 97 * (i % 9)",
    "search the network": "const box = document.getElementById('network-search'); box.value = 'block' + i;"
    " box.dispatchEvent(new Event('input', { bubbles: true }))",
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


def in_browser(page: Path, repeats: int, without: Path | None = None) -> list[Row]:
    """Return the rows of a page; ``without`` is the same page without the network."""
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
        rows += [row(use, used(browser, use, repeats)) for use in USES]
        return rows if without is None else [*rows, *ratios(browser, page, without, repeats)]
    finally:
        browser.quit()


def used(browser: Any, use: str, repeats: int) -> float:
    """Return the median seconds of a use of the open page."""
    return median([browser.execute_async_script(TIMED % USES[use], i) for i in range(repeats)])


def ratios(browser: Any, page: Path, without: Path, repeats: int) -> list[Row]:
    """Return the first paint and the uses of both pages, measured in turn."""
    times: dict[str, list[list[float]]] = {name: [[], []] for name in ("first paint", "every chart", *COMPARED)}
    for _ in range(OPENINGS):
        for side, path in enumerate((page, without)):
            for name, seconds in zip(("first paint", "every chart"), opening(browser, path)):
                times[name][side].append(seconds)
            for use in COMPARED:
                times[use][side].append(used(browser, use, repeats))
    return [Row(f"{name}, with and without the network", *map(median, both), TIMES) for name, both in times.items()]


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
        without = Path(folder, "without.html")
        without.write_text(render(report, drawn=False), encoding="utf-8")
        rows = [
            row("making its text", seconds),
            Row("size", page.stat().st_size / 1e6, LARGEST_MB * max(options.layers / LAYERS, 1), 1.0, "MB"),
            *in_browser(page, repeats, without),
        ]
    show([replace(each, name=f"report of {options.layers} layers: {each.name}") for each in rows])


if __name__ == "__main__":
    main()
