"""The report for everyone, in a real browser: contrast, names for those who listen, keys, a phone, and paper."""

from dataclasses import replace
from itertools import pairwise

import pytest

from sgsdump.reports.code import Code

from .page import find, selected
from .reports import report, tradeoff

NAMES = [f"stage{i // 10}/conv{i}" for i in range(60)]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 390])
def test_contrast_and_width(opened, dark, width):
    plain = report(NAMES, {3}, assumptions=["x"])
    code = (Code("net.py:3", 3, ("y = x" + " + x" * 60, "return y")),)
    layers = tuple(replace(layer, facts=replace(layer.facts, code=code)) for layer in plain.layers)
    page = opened(replace(plain, layers=layers, tradeoff=tradeoff()), width, dark=dark)
    assert find(page, ".code mark").is_displayed()
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
    assert find(page, "th[data-key=rmse]").text.startswith("RMSE")


def test_heads_are_repeated_on_paper(opened):
    """Chromium leaves buttons out of the heads that it repeats on each page."""
    page = opened(report(NAMES))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    displays = "return [...document.querySelectorAll('thead button')].map(b => getComputedStyle(b).display)"
    assert set(page.execute_script(displays)) == {"contents"}


def test_one_row_of_the_table_is_reached_by_tab_and_the_others_by_arrows(opened):
    page = opened(report(NAMES))
    reached = "return [...document.querySelectorAll('#table tbody [tabindex=\"0\"]')].map(b => b.title)"
    assert page.execute_script(reached) == [selected(page)]
    find(page, "#search").send_keys("conv7")
    assert page.execute_script(reached) == [NAMES[7]]
    find(page, "#search").clear()
    find(page, "th[data-key=place] button").click()
    find(page, f"#table .name[title='{NAMES[7]}']").click()
    for key, name in (("\ue015", NAMES[8]), ("\ue00f", NAMES[18]), ("\ue010", NAMES[-1]), ("\ue011", NAMES[0])):
        page.switch_to.active_element.send_keys(key)  # down, page down, end, home
        assert selected(page) == name and page.execute_script(reached) == [name]


def test_tab_goes_through_the_page_in_the_order_of_its_parts(opened):
    """Not one stop for each of 60 layers; every stop is seen."""
    page = opened(replace(report(NAMES), tradeoff=tradeoff()))
    stops = []
    for _ in range(80):
        page.switch_to.active_element.send_keys("\ue004")
        stop = page.execute_script(STOP)
        if stop in stops or not stop[0]:
            break
        stops.append(stop)
    parts = [part for part, *_ in stops]
    order = ["HEADER", "depth", "network", "selected", "layers", "tradeoff"]
    assert [part for part, before in pairwise([*parts, ""]) if part != before] == order
    assert len(stops) < 60 and all(height > 0 for *_, height in stops)


STOP = """
const e = document.activeElement, part = e.closest("header, section[id]");
const place = [...document.querySelectorAll("*")].indexOf(e);
return [part ? part.id || part.tagName : "", place, e.offsetHeight];
"""
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
