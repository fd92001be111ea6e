"""The report in a real browser: sort, filter, click, zoom, keyboard; no error in the console, nothing fetched."""

import math
from dataclasses import replace

from sgsdump.reports.code import Code
from sgsdump.reports.report import Bits, OtherRun, View

from .page import dots, drag, find, hover, names, selected
from .reports import HOSTILE, hostile, report, tradeoff

NAMES = [f"stage{i // 10}/conv{i}" for i in range(60)]


def test_sort(opened):
    shown_report = report(NAMES)
    page = opened(shown_report)
    rows = {layer.name: layer.figures.rmse for layer in shown_report.layers}
    assert names(page) == sorted(NAMES, key=lambda name: -rows[name])  # worst first
    find(page, "th[data-key=place] button").click()
    assert names(page) == NAMES
    find(page, "th[data-key=place] button").click()
    assert names(page) == NAMES[::-1]
    find(page, "th[data-key=name] button").click()
    assert names(page) == NAMES
    assert find(page, "th[data-key=name]").get_attribute("aria-sort") == "ascending"


def test_the_bits_of_convolutions_are_a_column_and_a_filter(opened):
    from selenium.webdriver.support.ui import Select

    you, rule = Bits("in", 16, "you"), Bits("in", 16, "rules of the SDK", "output of the network")
    bits = {
        NAMES[0]: you,
        NAMES[2]: rule,
        NAMES[4]: Bits("in", 8, advised=True),
        NAMES[6]: Bits("in", 8),
        NAMES[1]: Bits("in", 32),
    }
    page = opened(report(NAMES, bits=bits))
    cells = {row.find_element("css selector", ".name").get_attribute("title"): row.find_element("class name", "k-bits")
             for row in page.find_elements("css selector", "#table tbody tr")}  # fmt: skip
    told = {name: cell.text for name, cell in cells.items() if cell.text}
    assert told == dict(zip(bits, ("16 you", "16 rule", "8 → 16", "8", "float")))
    find(page, "th[data-key=bits] button").click()
    assert names(page)[:5] == [NAMES[1], NAMES[0], NAMES[2], NAMES[4], NAMES[6]]
    find(page, "th[data-key=bits] button").click()
    assert names(page)[:5] == [NAMES[6], NAMES[4], NAMES[0], NAMES[2], NAMES[1]]  # layers without bits stay last
    choice = Select(find(page, "#bits"))
    wanted = {
        "16 bits": [0, 2],
        "8 bits": [4, 6],
        "float": [1],
        "16 bits advised": [4],
        "raised by rules of the SDK": [2],
    }
    for words, places in wanted.items():
        choice.select_by_visible_text(words)
        assert sorted(names(page)) == [NAMES[place] for place in places]
    find(page, "#table tbody button").click()
    assert "16, raised by rules of the SDK (output of the network)" in find(page, "#selected").text


def test_a_report_without_sqnr(opened):
    """As one of two older diagnoses is: no column, and nothing stumbles."""
    plain = report(NAMES[:8])
    layers = tuple(replace(layer, figures=replace(layer.figures, sqnr=None)) for layer in plain.layers)
    page = opened(replace(plain, layers=layers))
    assert "SQNR" not in find(page, "#table thead").text and "SQNR" not in find(page, "#selected").text
    assert "SQNR" not in hover(page, "#depth-chart") and len(page.find_elements("css selector", "#metric button")) == 3


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
    find(page, "button[data-walk='Next layer']").click()
    assert selected(page) == NAMES[2]
    find(page, ".walk > div:nth-of-type(1) button").click()
    assert selected(page) == NAMES[1]


def test_drag_zooms_and_escape_shows_the_whole(opened):
    page = opened(report(NAMES))
    chart = find(page, "#depth-chart")
    assert dots(page) == 60
    drag(page, "#depth-chart", -100, 200)
    assert 4 <= dots(page) < 20
    chart.send_keys("\ue00c")
    assert dots(page) == 60
    find(page, "#zoom-in").click()
    assert dots(page) in (30, 31)
    drag(page, "#depth-strip", -300, 100)
    assert dots(page) < 30
    chart.send_keys("0")
    assert dots(page) == 60


def test_the_window_of_the_strip_is_moved_and_pulled_by_its_edges(opened):
    page = opened(report(NAMES))
    room = find(page, "#depth-strip").size["width"] - 66  # 52 pixels left of it, 14 right
    middle = (52 - 14) / 2  # of the net, seen from the strip's
    drag(page, "#depth-strip", middle - room / 2, round(room / 4))
    assert dots(page) in (44, 45, 46)
    drag(page, "#depth-strip", middle + room / 2, -round(room / 4))
    seen = dots(page)
    assert seen in (29, 30, 31, 32)
    drag(page, "#depth-strip", middle, round(room / 3))
    find(page, "#depth-chart").send_keys("\ue010")  # End: the last layer is in view already, nothing moves
    assert dots(page) == seen
    drag(page, "#depth-strip", middle + 0.3 * room, -round(0.7 * room))
    find(page, "#depth-chart").send_keys("\ue011")
    assert dots(page) == seen


def test_hover_names_the_layer(opened):
    page = opened(report(NAMES))
    assert "RMSE" in hover(page, "#depth-chart") and "conv" in hover(page, "#depth-chart")


def test_where_the_error_rises_most_is_one_click_away(opened):
    shown_report = report(NAMES)
    page = opened(shown_report)
    steepest = sorted(shown_report.layers, key=lambda layer: -layer.figures.rise)[:5]
    cause, *buttons = page.find_elements("css selector", "#steepest button")
    assert cause.get_attribute("title") == shown_report.view.first
    assert [button.get_attribute("title") for button in buttons] == [layer.name for layer in steepest]
    buttons[1].click()
    assert selected(page) == steepest[1].name


def test_every_metric_is_drawn(opened):
    page = opened(report(NAMES, {3}))
    for button in page.find_elements("css selector", "#metric button"):
        button.click()
        assert button.get_attribute("aria-checked") == "true"
        assert page.find_elements("css selector", "#depth-chart .odd")
        assert "NaN" not in find(page, "#depth-chart").get_attribute("innerHTML")


def test_equal_zeros_are_no_nan(opened):
    """Their COS and RMSE are 0 / 0, and nothing is wrong with them."""
    shown_report = report(NAMES)
    first = shown_report.layers[0]
    zeros = replace(first, figures=replace(first.figures, rmse=math.nan, cos=math.nan, mse=0.0))
    page = opened(replace(shown_report, layers=(zeros, *shown_report.layers[1:])))
    for button in page.find_elements("css selector", "#metric button")[:2]:
        button.click()
        assert dots(page) and not page.find_elements("css selector", "#depth-chart .odd")


def test_details_are_drawn(opened):
    page = opened(report(NAMES))
    titles = " ".join(title.text for title in page.find_elements("css selector", "#selected h3"))
    for what in ("Values", "Error, sample", "against value", "by channel", "over H × W"):
        assert what in titles
    assert "NaN" not in find(page, "#selected").get_attribute("innerHTML")
    assert page.execute_script(PIXELS) > 10


def test_hostile_names_are_text(opened):
    page = opened(hostile())
    assert page.title == "<title>&"
    assert not page.find_elements("css selector", "img, #evil, main h1")
    from sgsdump.reports.text import shown

    assert sorted(names(page)) == sorted(map(shown, HOSTILE))
    for row in page.find_elements("css selector", "#table tbody tr"):
        row.find_element("css selector", "button").click()
        assert selected(page)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_the_code_that_called_the_layer_is_text_with_the_line_marked(opened):
    lines = ("<img src=x onerror=alert(1)>", "\tcall()  # </script><b id=evil>", "\u202ey = 1" + "long" * 74)
    one = Code("net.py:10", 9, lines)
    two = (Code("long/" * 50 + "</pre>.py:3", 2, ("a", "b"), "sample"), Code("net.py:7", 7, ("c",), "benchmark"))
    plain = report(NAMES[:3])
    codes = dict(zip(NAMES, ((one,), two)))
    layers = [replace(layer, facts=replace(layer.facts, code=codes.get(layer.name, ()))) for layer in plain.layers]
    page = opened(replace(plain, layers=tuple(layers)), dark=True)
    find(page, "#depth-chart").send_keys("\ue011")  # Home
    texts = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    shown_lines = [" 9<img src=x onerror=alert(1)>", "10        call()  # </script><b id=evil>"]
    assert page.execute_script(texts, ".code code > *") == [*shown_lines, r"11\u202ey = 1" + "long" * 74]
    assert page.execute_script(texts, ".code mark") == shown_lines[1:]
    assert "Called at net.py:10" in [title.text for title in page.find_elements("css selector", "#selected h3")]
    assert not page.find_elements("css selector", "img, #evil")
    wide = "const c = document.querySelector('.code'); return [c.scrollWidth > c.clientWidth, c.querySelector('mark')"
    assert page.execute_script(f"{wide}.offsetWidth >= c.scrollWidth - 1]") == [True, True]  # scrolls in its box
    find(page, "#depth-chart").send_keys("\ue014")  # to the right
    assert page.execute_script(texts, ".code mark") == ["3b", "7c"]
    first, second = (box.get_attribute("aria-label") for box in page.find_elements("css selector", ".code"))
    assert first.endswith("</pre>.py:3 in the sample") and second == "Called at net.py:7 in the benchmark"
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    find(page, "#depth-chart").send_keys("\ue014")
    assert not page.find_elements("css selector", ".code")


def test_the_figures_of_the_selected_layer_are_those_of_the_table(opened):
    page = opened(report(NAMES, {3}))
    find(page, "th[data-key=place] button").click()
    for name in NAMES[:4]:
        row = find(page, f"#table .name[title='{name}']")
        row.click()
        cells = [cell.get_attribute("textContent") for cell in row.find_elements("xpath", "ancestor::tr/td")]
        figures = [figure.text for figure in page.find_elements("css selector", "#selected .figures dd")]
        _, _, rmse, cos, mse, decibels, _ = cells
        assert figures == [rmse, cos, mse, f"{decibels} dB"]
    assert "nan" in figures


def test_own_and_inherited_error(opened):
    chain = report(NAMES)
    page = opened(chain)
    find(page, "#depth-chart").send_keys("\ue011", "\ue014")  # Home, to the right
    first, second = chain.layers[:2]
    shares = [share.text for share in page.find_elements("css selector", "#selected .share dd")]
    assert shares == [f"{value:.6f}" for value in (first.figures.rmse, second.figures.rise, second.figures.rmse)]
    figures = replace(first.figures, own_error=0.25, inherited=0.5)
    measured = replace(chain, layers=(replace(first, figures=figures), *chain.layers[1:]))
    page = opened(measured)
    find(page, "#depth-chart").send_keys("\ue011")
    shares = [share.text for share in page.find_elements("css selector", "#selected .share dd")]
    assert shares == ["0.500000", "0.250000", f"{first.figures.rmse:.6f}"]
    assert "Measured" in find(page, "#selected").text


def test_the_tradeoff_and_the_text_of_each_plan(opened):
    page = opened(replace(report(NAMES), tradeoff=tradeoff()))
    assert find(page, "#tradeoff .tried").get_attribute("d").count("M") == 6
    assert "recommended: 0.7" in find(page, "#tradeoff-chart").text
    assert find(page, "#plan-text").text == "[CONV_CONFIG]\ntensor_arrays='a,b';"
    page.find_elements("css selector", "#plans button")[2].click()
    assert "every" in find(page, "#plan-text").text and "INT16" in find(page, "#plan-name").text
    page.find_elements("css selector", "#tradeoff-chart .plan")[0].click()
    assert "nothing to write" in find(page, "#plan-text").text and "INT8" in find(page, "#plan-name").text
    pressed = find(page, "#plans [aria-pressed=true]")
    assert pressed.text == "INT8"


def test_the_text_to_copy_is_copied(opened):
    from selenium.webdriver.support.ui import WebDriverWait

    page = opened(replace(report(NAMES), tradeoff=tradeoff()))
    find(page, "#tradeoff [data-copy]").click()
    # The clipboard answers when it likes.
    WebDriverWait(page, 10).until(lambda page: find(page, "#tradeoff [data-copy]").text == "Copied")
    find(page, "#search").send_keys("\ue009v")  # Ctrl+V
    assert find(page, "#search").get_attribute("value").startswith("[CONV_CONFIG]")


PIXELS = """
const canvas = document.querySelector("canvas");
return new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size;
"""


def test_without_a_dataflow_nothing_is_inherited(opened):
    page = opened(replace(report(NAMES), view=View(by_flow=False)))
    titles = " ".join(title.text for title in page.find_elements("css selector", "#selected h3"))
    assert "Values" in titles and "Where" not in titles
    assert "nherited" not in find(page, "#selected").text and "Fed by" not in find(page, "#selected").text
    assert "in file order" in find(page, "#depth .legend").text
    assert not page.find_elements("css selector", ".walk")


def test_the_layer_that_the_headline_names_is_shown_first(opened):
    assert selected(opened(replace(report(NAMES), view=View(NAMES[7])))) == NAMES[7]


def test_names_can_be_read_beside_what_was_measured(opened):
    shown_report = report(NAMES)
    figures = replace(shown_report.layers[0].figures, own_error=0.1, inherited=0.2, brings=0.3, gives_back=0.4)
    page = opened(
        replace(shown_report, layers=(replace(shown_report.layers[0], figures=figures), *shown_report.layers[1:]))
    )
    assert find(page, "#table tbody .name").size["width"] > 60
    assert find(page, "th[data-key=gives_back]").is_displayed()


def test_another_run_is_drawn_beside(opened):
    """Dashed, and told of the selected layer; what a word means is told when it is pointed at."""
    found = report(["net.a", "net.b", "net.c"])
    figures = [replace(layer.figures, rmse=0.5, sqnr=None) for layer in found.layers[:2]]
    earlier = OtherRun("before: monday", {"net.a": figures[0], "net.b": figures[1]})
    page = opened(replace(found, view=View(other=earlier)))
    assert find(page, "#depth-chart .other").get_attribute("d").count("L") == 1  # of two layers
    assert "before: monday" in find(page, "#depth .legend").text
    find(page, "#table tbody tr[data-place='0'] .name").click()
    text = find(page, "#selected").text
    assert "before: monday\nRMSE 0.500000" in text and "beyond the range" in text and "mean shift" in text
    titled = page.find_elements("css selector", "#selected dt[title]")
    assert {"RMSE", "COS", "mean shift"} <= {term.text for term in titled}
    # names of the axis without what all begin with
    assert [each.text for each in page.find_elements("css selector", "#depth-chart text")][-3:] == ["a", "b", "c"]


def test_names_without_a_common_beginning_keep_their_first_letter(opened):
    page = opened(report(["/stem/conv", "score", "box"]))
    drawn = [text.text for text in page.find_elements("css selector", "#depth-chart text")]
    assert {"/stem/conv", "score", "box"} <= set(drawn), drawn
    drawn = [
        text.text for text in opened(report(["net/a", "net/b"])).find_elements("css selector", "#depth-chart text")
    ]
    assert {"a", "b"} <= set(drawn), drawn
