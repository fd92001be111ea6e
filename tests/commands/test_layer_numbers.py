"""A layer has one number, whoever prints it: the one of its operator in the dump, or in the benchmark of two."""

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.dumps.dump import Record
from sgsdump.reports.charts import depth, layer_histogram, pair_sheets
from sgsdump.tensors.tensor import Tensor

_CELLS = r'<td class="n[^"]*">(\d+)</td>\s*<th[^>]*>(?:<[^>]*>)*(\w+)<'
NUMBERS = {"stem": 3, "left": 7, "right": 7, "head": 12}  # neither from 0 nor in steps, and two of one operator


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(1, 4, 4, 8)).astype(np.float32) for name in ("image", "fused", *NUMBERS)}
    for path, error in (("float.bin", 0.0), ("fixed.bin", 0.3)):
        inputs = [Record("in", 0, 3, "CONV_2D", _tensor("image", values["image"]))]
        middle = [] if error else [Record("out", 0, 1, "CONV_2D", _tensor("fused", values["fused"]))]
        outputs = [
            Record("out", int(name == "right"), 90 if error else number, "RELU", _tensor(name, values[name], error))
            for name, number in NUMBERS.items()
        ]
        sgsdump.save_dump([*inputs, *middle, *outputs], path)
    return tmp_path


def _tensor(name, values, error=0.0):
    return Tensor.of(name, values + np.float32(error) * np.roll(values, 1), layout="NHWC")


def run(capsys, words):
    assert main(words.split()) == 0
    return capsys.readouterr().out


def named(text):
    """Layer -> the numbers before its name, as in ``7.left``."""
    found = {}
    for number, name in re.findall(r"(\d+)\. ?(stem|left|right|head)\b", text):
        found.setdefault(name, set()).add(int(number))
    return found


EXPECTED = {name: {number} for name, number in NUMBERS.items()}


def test_of_one_dump(folder, capsys):
    head, *lines = (line.split() for line in run(capsys, "show float.bin").splitlines()[:-1])
    layer, name = head.index("layer"), head.index("name")
    assert {line[name]: int(line[layer]) for line in lines if line[name] in NUMBERS} == NUMBERS
    run(capsys, "show float.bin --csv float.csv --json float.json")
    rows = csv_rows("float.csv")
    assert {row["name"]: int(row["op_index"]) for row in rows if row["name"] in NUMBERS} == NUMBERS
    rows = json.loads(Path("float.json").read_text())["tensors"]
    assert {row["name"]: row["op_index"] for row in rows if row["name"] in NUMBERS} == NUMBERS


def test_of_histograms(folder, capsys, monkeypatch):
    titles = watch(monkeypatch, layer_histogram, "draw_frame")
    lines = [f"Name:{name}, min: -0.100000, max: 0.100000;\n" for name in NUMBERS]
    Path("tensor_min_max.txt").write_text("".join(lines))
    told = run(capsys, "histogram float.bin tensor_min_max.txt")
    assert named(told) == named("\n".join(titles)) == EXPECTED
    assert named("\n".join(path.stem for path in Path("Histograms").iterdir())) == EXPECTED


def test_of_two_dumps(folder, capsys, monkeypatch):
    titles = watch(monkeypatch, pair_sheets, "draw_frame")
    ticks = watch(monkeypatch, depth, "name_layers")
    told = run(
        capsys,
        "compare fixed.bin float.bin --csv out.csv --json out.json --html out.html --plots plots --junit out.xml "
        "--markdown out.md",
    )
    tables = {
        "csv": {row["name"]: int(row["op_index"]) for row in csv_rows("out.csv")},
        "json": {row["name"]: row["op_index"] for row in json.loads(Path("out.json").read_text())["rows"]},
        "page": {layer["name"]: layer["index"] for layer in _page_data("out.html")},
        "chart": {layer.name: layer.index for layer in ticks[0]},
    }
    assert {place: {name: rows[name] for name in NUMBERS} for place, rows in tables.items()} == dict.fromkeys(
        tables, NUMBERS
    )
    cases = [case.get("name") for case in ElementTree.parse("out.xml").iter("testcase")]
    texts = {
        "terminal": re.sub(r"(?m)^\w+ +(\d+) +(\w+) ", r"\1.\2 ", told),
        "junit": "\n".join(cases),
        "markdown": re.sub(r"\| *(\d+) *\|[^|]*?\b(stem|left|right|head)\b", r"\1.\2 ", Path("out.md").read_text()),
        "sheet": "\n".join(titles),
        "table": re.sub(_CELLS, r"\1.\2 ", Path("out.html").read_text()),
    }
    assert {place: named(text) for place, text in texts.items()} == dict.fromkeys(texts, EXPECTED)


def test_of_a_golden_comparison(folder, capsys):
    told = run(capsys, "judge float.bin float.bin float.bin --format sdk --junit out.xml")
    assert "index: 1 | head.npy" in told  # the card tool's own line, in the order of names
    cases = [case.get("name") for case in ElementTree.parse("out.xml").iter("testcase")]
    assert named("\n".join(cases)) == EXPECTED


def test_of_a_notebook(folder):
    html = sgsdump.compare("fixed.bin", "float.bin")._repr_html_()
    rows = re.findall(r"<tr><td>(\d+)</td>.*?<bdi title=\"(\w+)\"", html)
    assert {name: int(number) for number, name in rows} == NUMBERS


def csv_rows(path):
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def _page_data(path):
    data = re.search(r'type="application/json" id="data">(.*?)</script>', Path(path).read_text(), re.S)[1]
    return json.loads(data)["layers"]


def watch(monkeypatch, module, function):
    """The last argument but one or the name that each call of a drawing function gets."""
    seen, drawn = [], getattr(module, function)

    def watched(*args, **named):
        seen.append(args[3] if function == "draw_frame" else args[1])
        return drawn(*args, **named)

    monkeypatch.setattr(module, function, watched)
    return seen
