"""Look at the HTML report of 15 to 5,000 layers, light and dark, wide and on a phone: pictures, and what axe finds.

    python benchmarks/report_views.py FOLDER [--axe node_modules/axe-core/axe.min.js] [--layers 15,72]

Every part that a page can have is there: assumptions, the picture that is furthest off, bits, measured errors, another
run, plans. Writes FOLDER/report_N.html and FOLDER/N_WIDTH_THEME.png. Status 1 where axe (`npm install axe-core`)
finds anything, the page is wider than its window, or has blank space below. Needs Debian's chromium and
chromium-driver, and selenium.
"""

from __future__ import annotations

import argparse
import base64
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from report import deep

from sgsdump.fixedpoint.reports.graph_files import ERRORS, GRAPH, NETRON
from sgsdump.reports.html.document import render
from sgsdump.reports.layers.table import Entry
from sgsdump.reports.report import IN_FLOAT, Bits, Layer, OtherRun, Plan, Report, Tradeoff
from sgsdump.reports.verdict import Step
from sgsdump.reports.worst_picture import Said, WorstPicture, thumbnail

LAYERS, WIDTHS, THEMES = (15, 72, 500, 5000), (1400, 390), ("light", "dark")
HIGH = {1400: 1000, 390: 844}
TALLEST = 8000  # pixels of a picture
BLANK = 48  # pixels below the footer
OTHER = 0.02  # of every error, with what is advised
VIOLATIONS = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => done(violations.map((one) =>
  `${one.id} (${one.impact}): ${one.nodes.length}, such as ${one.nodes[0].target} ${one.nodes[0].failureSummary}`)));
"""
SIZES = """
const foot = document.querySelector('footer').getBoundingClientRect().bottom + scrollY;
return [document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight, foot];
"""


def full(count: int) -> Report:
    """A report with every part there is; the plans of a search only where layers are few."""
    plain = deep(count)
    random = np.random.default_rng(1)
    layers = tuple(_measured(layer, place, random) for place, layer in enumerate(plain.layers))
    other = {layer.name: replace(layer.figures, rmse=layer.figures.rmse * OTHER) for layer in layers}
    said = tuple(
        Said("prob", str(place), 0.9 - place / 9, 0.2 + place / 9, (not place, place == 3)) for place in (0, 2, 3)
    )
    pixels = np.linspace(0, 255, 200 * 300 * 3).reshape(200, 300, 3).astype(np.uint8)
    view = replace(
        plain.view,
        other=OtherRun("with what is advised", other),
        worst=WorstPicture("street/2026-11-27/camera_front_000117.jpg", said, False, thumbnail(pixels)),
        graph=(GRAPH, ERRORS, NETRON),
    )
    return replace(
        plain,
        title="net.onnx in fixed point",
        verdict=(
            "Outputs on all 32 pictures: prob COS 0.550333, RMSE 1.004144: bad.",
            f"Most of it arises at {layers[count // 2].name}.",
            f"{count} compared layers.",
        ),
        next_steps=(Step("Put this into input_config.ini:", f"[CONV_CONFIG]\ntensor_arrays='{layers[2].name}';"),),
        assumptions=("no input_config.ini was given",),
        layers=layers,
        left_out=tuple(Entry(f"fused/{place}", "not comparable", status="only in benchmark") for place in range(60)),
        tradeoff=_tradeoff() if count < 100 else None,
        facts=(("float model", "net.onnx"), ("to reproduce", "sgsdump diagnose -m net.onnx -i pictures")),
        view=view,
    )


def _measured(layer: Layer, place: int, random: np.random.Generator) -> Layer:
    """With bits, and every second one with measured errors; names as networks of transformers have them."""
    own, inherited, brings = random.random(3) * 0.2
    figures = replace(layer.figures, own_error=own, inherited=inherited, in_all=own + inherited, brings=brings)
    figures = replace(figures, gives_back=brings / 2)
    raised = Bits("x", 16, "you"), Bits("x", 8, "", "", True), Bits("x", 16, "rules of the SDK", "output")
    bits = (Bits("x", 8), *raised, Bits("x", IN_FLOAT))
    name = (
        f"model.layers.{place // 6}.{('self_attn.q_proj', 'self_attn.o_proj', 'mlp.gate_up_proj')[place % 3]}.{place}"
    )
    sources = (f"model.layers.{(place - 1) // 6}.{'x'}",)
    facts = replace(layer.facts, bits=bits[place % 5])
    return replace(layer, name=name, figures=figures if place % 2 else layer.figures, facts=facts, sources=sources)


def _tradeoff() -> Tradeoff:
    plans = (
        Plan("INT8", 0.5, 0.2),
        Plan("0.70", 0.68, 0.01, 0.7, "[CONV_CONFIG]\ntensor_arrays='a,b';"),
        Plan("INT16", 1.0, 1e-5, None, "[CONV_CONFIG]\ntensor_arrays='every';"),
    )
    tried = tuple((0.5 + place / 200, 0.2 * 0.9**place) for place in range(100))
    return Tradeoff(tried, plans, plans[1])


def opened(width: int, dark: bool) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    metrics = {"width": width, "height": HIGH[width], "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    return browser


def save_picture(browser: Any, path: Path, width: int, height: float) -> None:
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, TALLEST), "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))


def looked_at(browser: Any, page: Path, picture: Path, axe: str) -> list[str]:
    """What is wrong with a page in this window, a line each; its picture is written."""
    browser.get(page.as_uri())
    wide, window, high, foot = browser.execute_script(SIZES)
    save_picture(browser, picture, window, high)
    found = [f"{wide} pixels wide in a window of {window}"] if wide > window else []
    found += [f"{high - foot:.0f} blank pixels below"] if high - foot > BLANK and high > HIGH[window] else []
    found += [f"console: {entry['message']}" for entry in browser.get_log("browser")]
    if axe:
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})  # the page's policy allows no other script
        found += browser.execute_async_script(VIOLATIONS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where pages and pictures go")
    parser.add_argument("--axe", type=Path, metavar="FILE", help="axe.min.js of axe-core")
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)), metavar="N,N", help="(default: %(default)s)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    axe = options.axe.read_text(encoding="utf-8") if options.axe else ""
    pages = {}
    for count in map(int, options.layers.split(",")):
        pages[count] = options.folder.resolve() / f"report_{count}.html"
        pages[count].write_text(render(full(count)), encoding="utf-8")
    wrong = 0
    for width in WIDTHS:
        for theme in THEMES:
            browser = opened(width, theme == "dark")
            browser.set_script_timeout(120)
            for count, page in pages.items():
                found = looked_at(browser, page, options.folder / f"{count}_{width}_{theme}.png", axe)
                wrong += len(found)
                print(f"{count} layers, {width} pixels, {theme}: {'; '.join(found) or 'nothing found'}", flush=True)
            browser.quit()
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
