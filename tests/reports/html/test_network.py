"""The drawing of the network and the tensor viewer in a real browser."""

from dataclasses import replace

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.report import Context, OtherRun, View, report_of
from sgsdump.reports.tensors.views import BUDGET
from sgsdump.tensors.tensor import Tensor

from .page import data, find, hover, selected
from .reports import HOSTILE, hostile, report

NAMES = [f"stage{i // 10}/conv{i}" for i in range(60)]


def nodes(page):
    return page.execute_script(
        "return [...document.querySelectorAll('#network-drawing [data-node]')].map(n => n.textContent)"
    )


def click(page, text):
    script = """
      const nodes = [...document.querySelectorAll('#network-drawing [data-node]')];
      const node = nodes.find(n => n.textContent.includes(arguments[0]));
      node.lastChild.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    """
    page.execute_script(script, text)


def chosen(page):
    return page.execute_script(
        "return [...document.querySelectorAll('#network-drawing .chosen')].map(n => n.textContent)"
    )


def test_modules_are_closed_and_the_selected_layer_is_shown(opened):
    page = opened(report(NAMES))
    first = selected(page)
    assert any(text.startswith(first.split("/")[1]) for text in chosen(page))
    find(page, "#network-none").click()
    find(page, "#network-fit").click()
    assert sum(text.startswith("+ stage") for text in nodes(page)) == 6


def test_a_node_selects_its_row_and_a_row_selects_its_node(opened):
    page = opened(report(NAMES))
    find(page, "#network-none").click()
    find(page, "#network-fit").click()
    click(page, "stage2")
    click(page, "conv21")
    assert selected(page) == NAMES[21]
    assert find(page, "tr[aria-current] .name").get_attribute("title") == NAMES[21]
    find(page, f"#table .name[title='{NAMES[47]}']").click()
    assert any("conv47" in text for text in chosen(page))


def test_keys_move_and_open(opened):
    page = opened(report(NAMES))
    find(page, f"#table .name[title='{NAMES[30]}']").click()
    pane = find(page, "#network-pane")
    pane.send_keys("\ue015")  # down
    assert selected(page) == NAMES[31]
    pane.send_keys("\ue013\ue013")  # up, to the layer before
    assert any("stage2" in text or "conv29" in text for text in chosen(page)) or selected(page) == NAMES[29]
    before = page.execute_script("return document.getElementById('network-drawing').getAttribute('viewBox')")
    pane.send_keys("+")
    assert page.execute_script("return document.getElementById('network-drawing').getAttribute('viewBox')") != before
    pane.send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "network-search"


def test_search_steps_through_matches(opened):
    page = opened(report(NAMES))
    box = find(page, "#network-search")
    box.send_keys("conv5")
    assert find(page, "#network-found").text == "11 matches"
    box.send_keys("\ue007")
    assert selected(page) == "stage0/conv5" and find(page, "#network-found").text == "1 of 11"
    box.send_keys("\ue007")
    assert selected(page) == "stage5/conv50"


def test_colours_and_the_other_run(opened):
    plain = report(NAMES)
    better = {layer.name: replace(layer.figures, rmse=layer.figures.rmse / 10) for layer in plain.layers}
    page = opened(replace(plain, view=replace(plain.view, other=OtherRun("with the advice", better))))
    labels = [each.text for each in page.find_elements("css selector", "#network-colour button")]
    assert labels == ["Error added", "RMSE", "Change"]
    page.find_elements("css selector", "#network-colour button")[2].click()
    assert "÷ 10" in " ".join(nodes(page)) and "smaller error" in find(page, "#network-scale").text
    assert page.find_elements("css selector", "#network-drawing .better")


def test_without_dataflow_the_page_says_so(opened):
    plain = report(NAMES[:12])
    layers = tuple(replace(layer, sources=()) for layer in plain.layers)
    page = opened(replace(plain, layers=layers, view=View(by_flow=False)))
    assert "dataflow unknown" in find(page, "#network").text
    labels = [each.text for each in page.find_elements("css selector", "#network-colour button")]
    assert labels == ["RMSE"]


def test_hostile_names_stay_text(opened):
    page = opened(hostile())
    assert page.title == "<title>&" and not page.find_elements("id", "evil")
    find(page, "#network-fit").click()
    assert len([text for text in nodes(page) if text]) >= len(HOSTILE) - 1


def loud(budget=BUDGET):
    """Ten layers; channel 12 of layer 5 is wrong."""
    random = np.random.default_rng(3)
    sides = ([], [])
    for index in range(10):
        benchmark = random.normal(size=(1, 32, 9, 11)).astype(np.float32)
        sample = benchmark + np.float32(1e-4)
        if index == 5:
            sample[0, 12] *= 4
        for records, values in zip(sides, (sample, benchmark)):
            if index:
                records.append(Record("in", 0, index, "Conv", records[-1].tensor))
            records.append(Record("out", 0, index, "Conv", Tensor.of(f"conv{index}", values, layout="NCHW")))
    dumps = list(map(Dump, sides))
    context = Context(sample=dumps[0], benchmark=dumps[1], page_budget=budget)
    return report_of(compare(*dumps, details=True), context=context)


def test_the_wrong_channel_is_shown_first(opened):
    page = opened(loud())
    assert selected(page) == "conv5"
    assert find(page, ".tensors h3").text == "Values of channel 12 (of 32)"
    assert len(page.find_elements("css selector", ".planes canvas")) == 3
    text = hover(page, ".planes figure:nth-child(3) canvas")
    assert "sample" in text and "benchmark" in text and "difference" in text and "row" in text
    slider = find(page, ".tensors input[type=range]")
    assert slider.get_attribute("value") == "12"
    slider.send_keys("\ue014")
    assert find(page, ".tensors h3").text == "Values of channel 13 (of 32)"


def test_a_layer_without_values_says_how_to_see_them(opened):
    page = opened(loud(budget=30_000))
    assert page.find_elements("css selector", "script[id^=tensor-]")
    assert (
        sum(
            len(each.get_attribute("textContent")) for each in page.find_elements("css selector", "script[id^=tensor-]")
        )
        < 40_000
    )
    page = opened(loud(budget=0))
    assert "--serve" in find(page, ".tensors").text


def test_a_vector_is_drawn_as_stems(opened):
    benchmark = np.random.default_rng(4).normal(size=(1, 300)).astype(np.float32)
    sample = benchmark.copy()
    sample[0, 17] += 5
    sides = [
        Dump([Record("out", 0, i, "Gemm", Tensor.of(f"fc{i}", values)) for i in range(2)])
        for values in (sample, benchmark)
    ]
    page = opened(
        report_of(
            compare(*sides, details=True), context=Context(sample=sides[0], benchmark=sides[1], page_budget=BUDGET)
        )
    )
    assert len(page.find_elements("css selector", ".tensors .stem")) == 3
    assert "index 17" in find(page, ".tensors").text


@pytest.mark.parametrize("width", [1300, 390])
def test_fused_operators_open(opened, width):
    tensors = {
        name: np.random.default_rng(6).normal(size=(1, 3, 4, 4)).astype(np.float32) for name in ("conv", "bn", "relu")
    }
    whole, fused = [], []
    for index, (name, values) in enumerate(tensors.items()):
        if index:
            whole.append(Record("in", 0, index, name, whole[-1].tensor))
        whole.append(Record("out", 0, index, name, Tensor.of(f"block/{name}", values, layout="NCHW")))
    fused = [Record("out", 0, 0, "Conv", Tensor.of("block/relu", tensors["relu"] + 1, layout="NCHW"))]
    last = [Record("out", 0, 9, "Softmax", Tensor.of("prob", tensors["conv"], layout="NCHW"))]
    read = [Record("in", 0, 9, "Softmax", whole[-1].tensor)]
    sample, benchmark = Dump([*fused, *last]), Dump([*whole, *read, *last])
    page = opened(report_of(compare(sample, benchmark), context=Context(sample=sample, benchmark=benchmark)), width)
    assert [name for name, _ in data(page)["graph"]["parts"]] == ["block/conv", "block/bn"]
    find(page, "#network-none").click()
    find(page, "#network-fit").click()
    assert not any("block/conv" in text for text in nodes(page))
    click(page, "relu")
    find(page, "#network-fit").click()
    assert any("block/conv" in text for text in nodes(page)) and any("not compared" in text for text in nodes(page))
