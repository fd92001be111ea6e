"""The report in a real browser: sort, filter, click, zoom, keyboard; no error, nothing fetched, names and contrast."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest

from sgsdump.reports.html.document import render

from .reports import HOSTILE, hostile, report, tradeoff

selenium = pytest.importorskip("selenium", reason="the report in a browser needs selenium")
CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="the report in a browser needs chromium and chromedriver"),
    pytest.mark.xdist_group("browser"),
]
NAMES = [f"stage{i // 10}/conv{i}" for i in range(60)]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # a container has neither the privileges of Chromium's sandbox nor a large /dev/shm
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report in a window of a size; at the end the console must be empty and nothing else fetched."""

    def open_it(report, width=1300, height=1000, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        path = tmp_path / "report.html"
        path.write_text(render(report), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("performance")
        browser.get(path.as_uri())
        return browser

    yield open_it
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url.partition("#")[0] for url in asked} == {(tmp_path / "report.html").as_uri()}


def names(page):
    rows = "[...document.querySelectorAll('#table tbody tr')].filter(r => !r.hidden)"
    return page.execute_script(f"return {rows}.map(r => r.querySelector('.name').title)")


def selected(page):
    return page.find_element("id", "selected-title").text


def find(page, css):
    return page.find_element("css selector", css)


def test_sort(opened):
    shown_report = report(NAMES)
    page = opened(shown_report)
    rows = {layer.name: layer.rmse for layer in shown_report.layers}
    assert names(page) == sorted(NAMES, key=lambda name: -rows[name])  # worst first
    find(page, "th[data-key=place] button").click()
    assert names(page) == NAMES
    find(page, "th[data-key=place] button").click()
    assert names(page) == NAMES[::-1]
    find(page, "th[data-key=name] button").click()
    assert names(page) == NAMES
    assert find(page, "th[data-key=name]").get_attribute("aria-sort") == "ascending"


def test_nan_is_the_worst(opened):
    assert names(opened(report(NAMES, {7})))[0] == NAMES[7]


def test_filter_and_search(opened):
    from selenium.webdriver.support.ui import Select

    page = opened(report(NAMES))
    find(page, "#search").send_keys("stage3/ CONV")
    assert sorted(names(page)) == NAMES[30:40]
    assert page.find_element("id", "shown-count").text == "10 of 60 shown"
    Select(find(page, "#op")).select_by_visible_text("Relu")
    assert sorted(names(page)) == NAMES[31:40:2]
    find(page, "input[name=verdict][value=fail]").click()
    assert len(names(page)) < 5


def test_click_and_keys_select(opened):
    from selenium.webdriver.common.keys import Keys

    page = opened(report(NAMES))
    rows = page.find_elements("css selector", "#table tbody tr")
    rows[3].find_element("css selector", "button").click()
    assert selected(page) == names(page)[3]
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert selected(page) == names(page)[4]
    assert len(page.find_elements("css selector", "tr[aria-current]")) == 1
    slider = find(page, "#depth-chart")
    slider.send_keys(Keys.HOME)
    assert selected(page) == NAMES[0]
    slider.send_keys(Keys.ARROW_RIGHT, Keys.PAGE_DOWN, Keys.END, Keys.ARROW_LEFT)
    assert selected(page) == NAMES[-2]
    assert NAMES[-2] in slider.get_attribute("aria-valuetext")


def test_walk_along_the_net(opened):
    page = opened(report(NAMES))
    find(page, "#depth-chart").send_keys("\ue011")  # Home
    find(page, ".walk > div:last-child button").click()
    assert selected(page) == NAMES[1]
    find(page, "button[data-walk='Layer after']").click()
    assert selected(page) == NAMES[2]
    find(page, ".walk > div:nth-of-type(1) button").click()
    assert selected(page) == NAMES[1]


def dots(page):
    return len(page.find_elements("css selector", "#depth-chart .dot"))


def test_drag_zooms_and_escape_shows_the_whole(opened):
    from selenium.webdriver.common.action_chains import ActionChains

    page = opened(report(NAMES))
    chart = find(page, "#depth-chart")
    assert dots(page) == 60
    ActionChains(page).move_to_element_with_offset(chart, -100, 0).click_and_hold().move_by_offset(
        200, 0
    ).release().perform()
    assert 4 <= dots(page) < 20
    chart.send_keys("\ue00c")
    assert dots(page) == 60
    find(page, "#zoom-in").click()
    assert dots(page) in (30, 31)
    strip = find(page, "#depth-strip")
    ActionChains(page).move_to_element_with_offset(strip, -300, 0).click_and_hold().move_by_offset(
        100, 0
    ).release().perform()
    assert dots(page) < 30


def test_hover_names_the_layer(opened):
    from selenium.webdriver.common.action_chains import ActionChains

    page = opened(report(NAMES))
    ActionChains(page).move_to_element(find(page, "#depth-chart")).perform()
    assert "stage" in find(page, "#tip").text and "RMSE" in find(page, "#tip").text


def test_every_metric_is_drawn(opened):
    page = opened(report(NAMES, {3}))
    for button in page.find_elements("css selector", "#metric button"):
        button.click()
        assert button.get_attribute("aria-checked") == "true"
        assert page.find_elements("css selector", "#depth-chart .odd")
        assert "NaN" not in find(page, "#depth-chart").get_attribute("innerHTML")


def test_details_are_drawn(opened):
    page = opened(report(NAMES))
    titles = " ".join(title.text for title in page.find_elements("css selector", "#selected h3"))
    for what in ("Values", "Error, sample", "against value", "by channel", "Where it sits"):
        assert what in titles
    assert "NaN" not in find(page, "#selected").get_attribute("innerHTML")
    assert page.execute_script(PIXELS) > 10


def test_hostile_names_are_text(opened):
    page = opened(hostile())
    assert page.title == "<title>&"
    assert not page.find_elements("css selector", "img, #evil, main h1")
    from sgsdump.reports.shown import shown

    assert sorted(names(page)) == sorted(map(shown, HOSTILE))
    for row in page.find_elements("css selector", "#table tbody tr"):
        row.find_element("css selector", "button").click()
        assert selected(page)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_the_tradeoff(opened):
    page = opened(replace(report(NAMES), tradeoff=tradeoff()))
    assert find(page, "#tradeoff .tried").get_attribute("d").count("M") == 6
    assert "to take: 0.7" in find(page, "#tradeoff-chart").text


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 390])
def test_contrast_and_width(opened, dark, width):
    page = opened(replace(report(NAMES, {3}, assumptions=["x"]), tradeoff=tradeoff()), width, dark=dark)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert page.execute_script(CONTRAST) == []


def test_everything_to_operate_has_a_name_and_ids_are_unique(opened):
    page = opened(replace(report(NAMES), tradeoff=tradeoff()))
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    operated = {"button", "radio", "checkbox", "slider", "searchbox", "textbox", "combobox", "link", "image", "region"}
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in operated and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    levels = page.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))


def test_the_printed_page_shows_the_whole_table_on_white(opened):
    page = opened(report(NAMES), dark=True)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.execute_script(
        "const s = document.querySelector('#layers .scroll'); return s.scrollHeight <= s.clientHeight + 2"
    )
    assert not find(page, ".filters").is_displayed()
    assert find(page, "th[data-key=rmse] button").is_displayed()


# The ratio of WCAG 2.1, 1.4.3: at least 4.5 to 1 for text.
CONTRAST = """
const part = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => 0.2126 * part(r / 255) + 0.7152 * part(g / 255) + 0.0722 * part(b / 255);
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const back = (e) => {
  for (; e; e = e.parentElement) {
    const colour = rgb(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > 0.5) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
for (const e of document.querySelectorAll("body *")) {
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!text || !e.getClientRects().length || e.closest("script,style,option,:disabled")) continue;
  const front = light(rgb(getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"]));
  const behind = light(back(e));
  const ratio = (Math.max(front, behind) + 0.05) / (Math.min(front, behind) + 0.05);
  if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), ratio]);
}
return bad;
"""
PIXELS = """
const canvas = document.querySelector("canvas");
return new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size;
"""
