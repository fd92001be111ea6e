"""The reports of the demo, of a real network's diagnosis, and of 500 layers, used in a real browser."""

import pytest

from sgsdump.cli import main

from .page import data, dots, drag, find, hover, names, selected
from .reports import report

LARGEST = 3_000_000
INI = """[INPUT_CONFIG]
inputs = input;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = scores,boxes;
dequantizations = TRUE,TRUE;
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "demo"
    assert main(["demo", "-o", str(folder)]) == 0
    dumps = [str(folder / name) for name in ("fixed.bin", "float.bin")]
    ranges = ["--ranges", str(folder / "log" / "tensor_min_max.txt")]
    assert main(["report", *dumps, *ranges, "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def diagnosis(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ultraface")
    (folder / "input_config.ini").write_text(INI)
    model = shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx"
    pictures = [shared / "ultraface" / "images" / f"{number}.jpg" for number in (1, 10, 12)]
    (folder / "pictures.txt").write_text("".join(f"{picture}\n" for picture in pictures))
    inputs = ["-m", str(model), "-i", str(folder / "pictures.txt"), "--input-config", str(folder / "input_config.ini")]
    assert main(["diagnose", *inputs, "-o", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return report([f"net/stage{i // 50}/block{i // 5}/conv{i}/Conv_output_0" for i in range(500)], {77})


@pytest.fixture(params=["demo", "diagnosis", "deep"])
def page(request, opened):
    return opened(request.getfixturevalue(request.param))


def test_use(page):
    """Sort, filter, search, select, walk and zoom; nothing is drawn of a number that is none."""
    layers = data(page)["layers"]
    all_names = [layer["name"] for layer in layers]
    sorts(page, layers)
    filters(page, layers)
    page.execute_script("scrollTo(0, 0)")
    walks(page, all_names)
    zooms(page, len(layers))
    tensors = page.find_elements("css selector", "[id^=tensor-]")  # they have a budget of their own
    assert len(page.page_source) - sum(len(each.get_attribute("textContent")) for each in tensors) < LARGEST


def sorts(page, layers):
    rank = {"fail": 2, "warn": 1, "pass": 0}
    measured = bool(page.find_elements("css selector", "th[data-key=gives_back]"))
    for key in ("rmse", "cos", "mse", "sqnr", *(() if measured else ("rise",)), "verdict"):
        values = {
            layer["name"]: rank.get(layer.get(key)) if key == "verdict" else float(layer[key]) for layer in layers
        }
        head = find(page, f"th[data-key={key}]")
        if not head.is_displayed():
            continue
        for _ in range(2):
            head.find_element("css selector", "button").click()
            sign = {"ascending": 1, "descending": -1}[head.get_attribute("aria-sort")]
            order = [values[name] for name in names(page)]
            assert len(order) == len(layers)
            assert order == sorted(order, key=lambda value: sign * (float("inf") if value != value else value))


def filters(page, layers):
    from selenium.webdriver.support.ui import Select

    op = layers[0]["op"]
    Select(find(page, "#op")).select_by_visible_text(op)
    assert sorted(names(page)) == sorted(layer["name"] for layer in layers if layer["op"] == op)
    Select(find(page, "#op")).select_by_index(0)
    word = layers[-1]["name"][-3:].upper()
    find(page, "#search").send_keys(word)
    found = sorted(names(page))
    assert layers[-1]["name"] in found and all(word.lower() in text_of(layers, name) for name in found)
    find(page, "#search").clear()
    find(page, "#search").send_keys(" ")
    find(page, "#rises").click()
    assert sorted(names(page)) == sorted(layer["name"] for layer in layers if layer.get("rises"))
    find(page, "#rises").click()
    assert len(names(page)) == len(layers)


def text_of(layers, name):
    layer = next(layer for layer in layers if layer["name"] == name)
    return f"{name} {layer['op']} {layer.get('note', '')}".lower()


def walks(page, all_names):
    chart = find(page, "#depth-chart")
    for keys, place in (("\ue011", 0), ("\ue014", 1), ("\ue00f", 0), ("\ue010", -1), ("\ue012", -2)):
        chart.send_keys(keys)  # Home, right, page down, End, left
        assert selected(page) == all_names[place]
        drawn = find(page, "#selected").get_attribute("innerHTML")
        assert "NaN" not in drawn and "undefined" not in drawn
        assert page.find_elements("css selector", "#selected .walk .here")
        assert len(page.find_elements("css selector", "#selected .chart svg")) >= 3
    find(page, ".walk > div:nth-of-type(1) button").click()
    assert selected(page) in all_names
    chart.click()
    near = [len(all_names) // 2 + step for step in range(-12, 13)]
    assert selected(page) in [all_names[place] for place in near if 0 <= place < len(all_names)]
    assert selected(page)[:12] in hover(page, "#depth-chart").replace("…", "")


def zooms(page, count):
    for button in page.find_elements("css selector", "#metric button"):
        button.click()
        assert "NaN" not in find(page, "#depth-chart").get_attribute("innerHTML")
    drag(page, "#depth-chart", -60, 120)
    assert 4 <= dots(page) < max(count, 5)
    find(page, "#zoom-all").click()
    before = find(page, "#depth-chart").get_attribute("innerHTML")
    find(page, "#zoom-in").click()
    assert find(page, "#depth-chart").get_attribute("innerHTML") != before
    find(page, "#zoom-out").click()
    assert find(page, "#depth-chart").get_attribute("innerHTML") == before


@pytest.mark.parametrize("which", ["demo", "diagnosis", "deep"])
def test_a_phone(request, opened, which):
    page = opened(request.getfixturevalue(which), 390, 844)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    row = page.find_elements("css selector", "#table tbody tr .name")[2]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
    name = row.get_attribute("title")
    row.click()
    assert selected(page) == name
    top = page.execute_script("return document.getElementById('selected').getBoundingClientRect().top")
    assert abs(top) < 20
