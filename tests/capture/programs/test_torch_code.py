"""``exec --with-source``: the program's code around each line that calls an operator, in the tree and on the page."""

import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from torch_runs import runner, write_program

from sgsdump import DumpControl, capture, compare, open_dump
from sgsdump.capture.programs.process_index import lines_of
from sgsdump.cli import main
from sgsdump.dumps.trees import list_runs
from sgsdump.reports.html.document import document, render
from sgsdump.reports.report import Context, report_of
from sgsdump.reports.server.unmeasured import report_of_dump

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
MARKER = "</script><b id=owned> \\u202e KEPT"
MODEL = f"""
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, x):
        # {MARKER}
        x = self.first(x)
        return torch.relu(x) + {"1 + " * 100}0

net = Model().eval()
for step in range(2):
    with torch.no_grad():
        net(torch.full((2, 4), step + 1.0)) * 2
"""


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


def tree_of(folder, *options):
    program = write_program(folder, MODEL)
    words = [*"exec -q -er all -o".split(), str(folder), *options, "--", sys.executable, str(program)]
    assert main(words) == 0
    (tree,) = folder.glob("msit_dump_*")
    return tree


def has_marker(tree):
    return any(b"KEPT" in path.read_bytes() for path in tree.rglob("*") if path.is_file())


@pytest.mark.parametrize("options", [(), ("--tree",), ("--type", "model", "tensor", "stats")])
def test_the_code_around_each_line_is_kept_once_and_shown(tmp_path, options):
    tree = tree_of(tmp_path / "with", "--with-source", *options)
    dump = open_dump(f"{tree}@step=1")
    lines = dump.source_lines()
    text = (tmp_path / "with" / "program.py").read_text().splitlines()
    called = {operator.source for operator in dump.network().values()}
    assert called == {"program.py:12", "program.py:13"} and called <= set(lines)
    assert lines["program.py:12"][0] == 10
    assert lines["program.py:12"][1][:3] == tuple(text[9:12]) and "KEPT" in lines["program.py:12"][1][1]
    assert lines["program.py:12"][1][3] == text[12][:299] + "…"
    assert "program.py:18" in lines  # the operator between two rounds
    kept = [line["source"] for process in tree.glob("processes/*") for line in lines_of(process) if is_code(line)]
    assert set(Counter(kept).values()) == {1} and set(kept) == set(lines)
    assert open_dump(f"{tree}@step=0").select("*").source_lines() == lines
    comparison = compare(dump, dump)
    report = report_of(comparison, context=Context(sample=dump, benchmark=dump))
    layers = document(report)["layers"]
    assert {layer["code"][0]["place"] for layer in layers} == called and "attributes" not in layers[0]
    assert "<b id=owned>" not in render(report) and "\\u003cb id=owned" in render(report)
    assert report_of_dump("one", dump).layers[0].facts.code[0].place in called  # the page of the server


def is_code(line):
    return line.get("event") == "source"


@pytest.mark.parametrize("options", [(), ("--tree",)])
def test_nothing_is_kept_without_the_option(tmp_path, options):
    tree = tree_of(tmp_path / "without", *options)
    assert not has_marker(tree) and open_dump(f"{tree}@step=0").source_lines() == {}
    assert has_marker(tree_of(tmp_path / "with", "--with-source", *options))
    dump = open_dump(f"{tree}@step=0")
    layer = document(report_of(compare(dump, dump), context=Context(sample=dump, benchmark=dump)))["layers"][0]
    assert "code" not in layer and layer["attributes"] == [["called at", "program.py:12"]]


UNREADABLE = """
import os, pathlib
here = pathlib.Path(__file__).parent
sources = {"gone": b"", "latin": b"# -*- coding: utf-8 -*-\\n"}
for name, head in sources.items():
    path = here / (name + ".py")
    path.write_bytes(head + b"import torch\\ndef call(x):\\n    return torch.relu(x)\\n")
    sources[name] = __import__(name).call
    path.write_bytes(b"\\xff\\xfe" * 50 + b"\\n" * 9)
(here / "gone.py").unlink()
class Loader:
    def get_source(self, name):
        raise MemoryError
space = {"__name__": "odd", "__loader__": Loader(), "torch": torch}
exec(compile("\\n\\ndef call(x):\\n    return torch.sin(x)\\n", str(here / "odd.py"), "exec"), space)
class Model(torch.nn.Module):
    def forward(self, x):
        return sources["gone"](sources["latin"](space["call"](x))).cos()
print(Model()(torch.ones(2)))
"""


def test_code_that_cannot_be_read_is_left_out(run):
    done = run(UNREADABLE, with_source=True, layout="rounds")
    assert not done.process.troubles and done.process.complete and "tensor([" in done.text
    dump = open_dump(done.root)
    sources = [operator.source.partition(":")[0] for operator in dump.network().values()]
    assert sources == ["odd.py", "latin.py", "gone.py", "program.py"]
    assert {place.partition(":")[0] for place in dump.source_lines()} == {"program.py"}


FORKED = """
import os
class Model(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        if x.sum() > 100:
            x = x.sin()  # in the forked process alone
        return x
net, x = Model(), torch.ones(4)
net(x)
if not os.fork():
    net(x)
    net(x * 100)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("layout", ["files", "rounds"])
def test_a_forked_process_finds_the_code_that_its_parent_kept(run, layout):
    done = run(FORKED, with_source=True, layout=layout)
    kept = [line["source"] for process in done.captured.processes for line in lines_of(process.folder) if is_code(line)]
    assert len(done.captured.processes) == 2 and len(kept) == len(set(kept))
    counts = []
    for each in list_runs(done.root):
        dump = open_dump(done.root / each.place)
        called = {operator.source for operator in dump.network().values()}
        assert called <= set(dump.source_lines())
        counts.append(len(called))
    assert sorted(counts) == [2, 2, 3]


def test_the_process_of_the_round_wins_and_damaged_lines_are_ignored(run):
    done = run(MODEL, with_source=True, layout="rounds")
    own = done.process.folder
    place = done.root / next(run.place for run in list_runs(done.root))
    good = open_dump(place).source_lines()
    first = own.parent / "1"  # sorted before
    first.mkdir()
    lines = [
        {"event": "source", "source": "program.py:12", "first": 12, "lines": ["another program"]},
        {"event": "source", "source": "other.py:7", "first": 7, "lines": ["x" * 1000]},
        {"event": "source", "source": "other.py:7", "first": 7, "lines": ["second"]},
    ]
    damaged = {
        "source": ["b.py", "b.py:", "b.py:x", "b.py:1e3", "b.py:" + "9" * 5000, ":3", 3, None, ["b.py:3"]],
        "first": [0, 4, -1, 2, True, 3.0, "3", None, 10**30],
        "lines": ["text", [], [3], [None], ["a"] * 6, {"a": 1}, None, 5],
    }
    fine = {"event": "source", "source": "b.py:3", "first": 3, "lines": ["a"]}
    lines += [{**fine, key: value} for key, values in damaged.items() for value in values]
    written = "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "source", "source'
    (first / "index.jsonl").write_text(written)
    found = open_dump(place).source_lines()
    assert found == {**good, "other.py:7": (7, ("x" * 300,))}
    control = json.loads((done.root / "control.json").read_text())
    (done.root / "control.json").write_text(json.dumps({**control, "with_source": "yes"}))
    assert open_dump(place).source_lines() == {}


def test_the_number_of_places_is_limited(monkeypatch):
    from sgsdump.capture.programs.program import HOOK

    monkeypatch.syspath_prepend(str(HOOK / "for_torch"))
    import sgsdump_torch_source as hooked

    written = []
    session = SimpleNamespace(stopped="", line=lambda **fields: written.append(fields))
    code, frame = hooked.Code(session), sys._getframe()
    monkeypatch.setattr(hooked, "MOST_PLACES", 3)
    for number in [1, 1, 2, 3, 4, 5]:
        code.keep(f"net.py:{number}", frame)
    assert [line["source"] for line in written] == ["net.py:1", "net.py:2", "net.py:3"]
    stopped = hooked.Code(SimpleNamespace(stopped="the disk is full"))
    stopped.keep("net.py:1", frame)
    assert len(written) == 3


def test_capture_keeps_the_code_while_the_block_runs(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    for name, control in (("with", DumpControl(with_source=True)), ("without", DumpControl())):
        with capture(tmp_path / name, control):
            net(torch.ones(4))
    (place,) = open_dump(tmp_path / "with").source_lines()
    first, lines = open_dump(tmp_path / "with").source_lines()[place]
    assert "net(torch.ones(4))" in lines[int(place.rpartition(":")[2]) - first]
    assert open_dump(tmp_path / "without").source_lines() == {}
