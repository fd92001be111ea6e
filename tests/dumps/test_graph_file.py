"""The graph beside a dump: kept, found, left out, never in another file's place; read without the onnx library."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import model, node, residual_net

from sgsdump import compare, list_runs, open_dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps import graph_file
from sgsdump.dumps.graph_file import ENDING, graph_of, nodes_of, save_graph, tie_of
from sgsdump.dumps.onnx_network import source_of_stack
from sgsdump.errors import FormatError
from sgsdump.models.graph import without_values

GRAPH = without_values(residual_net().proto).SerializeToString()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of a net, as folders ``a`` and ``b`` and as a.npz and b.npz."""
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    for name, executor in (("a", "ort"), ("b", "reference")):
        assert main(["pipeline", "full", "-m", "net.onnx", "-f", executor, "-o", name, "--range", "-1", "1"]) == 0
        assert main(["convert", name, f"{name}.npz"]) == 0
    return tmp_path


def sources(sample: str, benchmark: str) -> dict[str, tuple[str, ...]]:
    comparison = compare(sample, benchmark)
    return {row.name: row.sources for row in comparison.rows} if comparison.completeness.by_flow else {}


FLOW = {"c1": (), "r1": ("c1",), "c2": ("r1",), "add": ("r1", "c2"), "r2": ("add",)}


def flow_of(sample: str, benchmark: str) -> dict[str, set[str]]:
    return {name: set(names) for name, names in sources(sample, benchmark).items() if name in FLOW}


KNOWN = {name: set(names) for name, names in FLOW.items()}


@pytest.mark.parametrize(("sample", "benchmark"), [("b", "a"), ("b.npz", "a.npz"), ("b.npz", "plain.npz")])
def test_two_dumps_without_a_model_know_what_feeds_what(folder: Path, sample: str, benchmark: str) -> None:
    save_dump(list(open_dump("a").values()), "plain.npz")
    assert flow_of(sample, benchmark) == KNOWN
    assert compare(sample, benchmark).completeness.outputs == ("prob",)


def test_nothing_is_invented_without_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        Path(name, "dump_info.json" + ENDING).unlink()
        Path(name + ".npz" + ENDING).unlink()
    for pair in (("b", "a"), ("b.npz", "a.npz")):
        comparison = compare(*pair)
        assert not comparison.completeness.by_flow and not comparison.completeness.outputs
        assert not any(row.sources or row.by_flow for row in comparison)
        capsys.readouterr()
        assert main(["compare", *pair]) == 0
        assert "from the input" not in capsys.readouterr().out
        assert main(["report", *pair, "-o", "report.html"]) == 0
        assert '"sources":[0' not in Path("report.html").read_text().replace(" ", "")


def test_a_report_says_what_feeds_what(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "b.npz", "a.npz", "-o", "report.html"]) == 0
    assert '"sources":[0' in Path("report.html").read_text().replace(" ", "")
    capsys.readouterr()
    assert main(["show", "a.npz", "r1"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "reads c1; read by c2, add"


def test_what_some_layers_of_which_are_dumped_is_looked_through(folder: Path) -> None:
    save_dump([tensor for name, tensor in open_dump("b").items() if name != "c2"], "part.npz")
    assert flow_of("part.npz", "a.npz") == {name: names - {"c2"} for name, names in KNOWN.items() if name != "c2"}
    assert main(["pipeline", "full", "-m", "net.onnx", "-s", "4", "-o", "few"]) == 0
    assert sources("few", "few") == {"c1": (), "r2": ("c1",), "gap": ("r2",), "prob": ("gap",)}


def test_it_is_found_when_the_dump_is_renamed(folder: Path) -> None:
    Path("b.npz").rename("c.npz")
    Path("a.npz").rename("d.npz")
    assert flow_of("c.npz", "d.npz") == KNOWN
    assert not open_dump("c.npz").notes
    Path("elsewhere").mkdir()
    Path("c.npz").rename("elsewhere/c.npz")
    assert not open_dump("elsewhere/c.npz").network()


def test_a_stale_one_is_left_out_and_said(folder: Path) -> None:
    arrays = {name: tensor.real() + 1 for name, tensor in open_dump("b.npz").items()}
    for name in ("a.npz", "b.npz"):
        save_dump(arrays, name)
        dump = open_dump(name)
        assert not dump.network()
        assert dump.notes[-1] == f"{name}{ENDING} is ignored: the graph belongs to another dump"
    assert flow_of("a.npz", "b.npz") == {}


def test_it_is_never_written_over_another_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Path("c.npz" + ENDING)
    other.write_bytes(b"mine")
    capsys.readouterr()
    assert main(["convert", "a", "c.npz"]) == 0
    assert (
        f"note: the model's graph is not saved beside c.npz: {other} already exists and was not written by sgsdump, "
        "so it was not overwritten" in capsys.readouterr().out
    )
    assert other.read_bytes() == b"mine"
    assert open_dump("c.npz").notes[-1] == f"{other} is ignored: the file is not a graph that sgsdump wrote"
    assert sources("c.npz", "c.npz") != {}  # by its content it is found as a copy of a.npz
    onnx.save(residual_net().proto, other)
    assert "was not written by sgsdump" in save_graph(GRAPH, Path("c.npz"))
    before = other.read_bytes()
    assert other.read_bytes() == before
    assert save_graph(GRAPH, Path("a.npz")) == ""  # its own it replaces


def test_what_ends_midway_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("a.npz" + ENDING).read_bytes()
    files = sorted(folder.iterdir())

    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    from contextlib import contextmanager

    true = graph_file.replacing

    @contextmanager
    def full(path):
        with true(path) as file:
            file.write(b"half")
            yield Full()

    monkeypatch.setattr(graph_file, "replacing", full)
    assert "No space left on device" in save_graph(GRAPH, Path("a.npz"))
    assert sorted(folder.iterdir()) == files and Path("a.npz" + ENDING).read_bytes() == before


def test_dump_keeps_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    Path("feeds.py").write_text(
        "import numpy as np\ndef load_data():\n    yield {'data': np.ones((1, 3, 8, 8), np.float32)}\n"
    )
    assert main(["dump", "-m", "net.onnx", "--data-loader-script", "feeds.py", "-o", "out.bin"]) == 0
    assert flow_of("out_0.bin", "out_0.bin") == KNOWN
    assert onnx.load("out_0.bin" + ENDING).graph.node[0].name == "c1"


def test_what_becomes_of_it_when_dumps_are_split_and_merged(folder: Path) -> None:
    assert main(["split", "a.npz", "parts"]) == 0
    assert not list(Path("parts").glob("*" + ENDING))
    Path("two").mkdir()
    assert main(["convert", "a", "two/a.npz", "--select", "c*"]) == 0
    assert main(["convert", "a", "two/b.npz", "--select", "r*"]) == 0
    assert main(["merge", "two", "merged.npz"]) == 0  # the graphs in the folder are no dumps
    assert set(open_dump("merged.npz")) == {"c1", "c2", "c3", "r1", "r2"} and not Path("merged.npz" + ENDING).exists()
    assert main(["convert", "a", "arrays"]) == 0
    assert not list(Path("arrays").glob("*" + ENDING))
    assert main(["convert", "a.npz", "again.safetensors"]) == 0
    assert graph_of(Path("again.safetensors")) == graph_of(Path("a"))


def test_it_has_no_weights(tmp_path: Path) -> None:
    large = model([node("MatMul", ["x", "w"], "y")], {"w": np.ones((1000, 1000), "f")}, {"x": (1, 1000)}, ["y"])
    large.proto.graph.node.insert(
        0, helper.make_node("Constant", [], ["table"], value=numpy_helper.from_array(np.ones(5000), "table"))
    )
    graph = without_values(large.proto)
    assert graph.ByteSize() < 500 and [n.op_type for n in graph.graph.node] == ["Constant", "MatMul"]
    assert [(t.name, list(t.dims)) for t in graph.graph.initializer] == [("w", [1000, 1000])]


def if_net() -> onnx.ModelProto:
    """A body that reads an outer tensor, ``x``, through another body, and one of its own."""
    info = helper.make_tensor_value_info
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "own"], ["t"])], "i", [], [info("t", TensorProto.FLOAT, None)]
    )
    deep = [
        helper.make_node("Neg", ["w"], ["own"]),
        helper.make_node("If", ["flag"], ["u"], then_branch=inner, else_branch=inner),
    ]
    body = helper.make_graph(deep, "b", [], [info("u", TensorProto.FLOAT, None)])
    node_ = helper.make_node("If", ["flag"], ["y"], "choose", then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [node_],
        "g",
        [info("flag", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(2, "f"), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_nodes_are_those_that_the_onnx_library_reads() -> None:
    attributes = {"ints": [3, -1, 1 << 62], "floats": [0.1, -2.5], "one": -7, "word": "full", "eps": 1e-5}
    many = helper.make_node("Odd", ["a", "", "b"], ["c", "d"], "odd", **attributes)
    graph = helper.make_graph([many], "g", [], [])
    (read,) = nodes_of(without_values(helper.make_model(graph)).SerializeToString())
    assert read[:4] == ("odd", "Odd", ["a", "", "b"], ["c", "d"])
    assert {name: json.loads(value) for name, value in read[5].items()} == attributes | {
        "floats": [float(f"{np.float32(0.1):.9g}"), -2.5],
        "eps": float(f"{np.float32(1e-5):.9g}"),
    }
    (choose,) = nodes_of(without_values(if_net()).SerializeToString())
    assert choose[2] == ["flag", "w", "x"]


def test_any_bytes_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, c1=np.ones(3, "f"), r1=np.ones(3, "f"))
    assert save_graph(GRAPH, path) == ""
    file = path.with_name(path.name + ENDING)
    whole, right = file.read_bytes(), open_dump(path).network()
    rng = np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        file.write_bytes(data[: int(rng.integers(len(data))) or None] if rng.random() < 0.3 else data)
        dump = open_dump(path)
        network = dump.network()
        assert (len(network), len(dump.notes)) == (0, 1) or network == right
    file.write_bytes(b"")
    assert open_dump(path).network() == {}
    with open(file, "wb") as large:
        large.truncate(graph_file.MOST_BYTES * 2)
    assert open_dump(path).network() == {}
    body = b""
    for _ in range(60):  # bodies within bodies, of a tie that is right
        body = graph_file._field(1, graph_file._field(5, graph_file._field(6, body)))
    file.unlink()
    assert save_graph(graph_file._field(7, body), path) == ""
    assert open_dump(path).network() == {}
    for junk in (rng.bytes(200) for _ in range(300)):
        file.unlink()
        assert save_graph(junk, path) == ""
        assert len(open_dump(path).network()) in range(3)


def test_of_a_large_file_parts_tell(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    data = bytearray(20 << 20)
    path.write_bytes(data)
    first = tie_of(path)
    for offset in (0, len(data) - 1, (len(data) - (64 << 10)) // 63 * 5):
        data[offset] = 1
        path.write_bytes(data)
        assert tie_of(path) != first
        data[offset] = 0
    path.write_bytes(data[:-1])
    assert tie_of(path) != first


def test_comparing_does_not_wait_for_the_onnx_library(folder: Path) -> None:
    program = (
        "import sys, sgsdump; c = sgsdump.compare('b.npz', 'a.npz'); print(c['r1'].sources, 'onnx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "('c1',) False\n"


def scoped(kind: str, reads: list[str], made: str, *scopes: str) -> onnx.NodeProto:
    """A node as torch's newer exporter writes it."""
    each = node(kind, reads, made)
    each.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(["", *scopes]))
    return each


STACK = """File "{root}/torch/nn/modules/module.py", line 1776, in _call_impl
    return forward_call(*args, **kwargs)
  File "/home/me/project/net.py", line {line}, in forward
    return self.act(x)
  File "{root}/torch/nn/modules/activation.py", line 144, in forward
    return F.relu(input)
"""


def test_the_line_of_the_program_comes_from_the_exporters_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, kind, line in (("a", "Relu", 12), ("b", "Abs", 40)):
        nodes = [node("Neg", ["x"], "turned"), node(kind, ["turned"], "y")]
        for each in nodes:
            stack = STACK.format(root="/usr/lib/python3/site-packages", line=line)
            each.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=stack)
        onnx.save(model(nodes, {}, {"x": (1, 4)}, ["y"]).proto, f"{name}.onnx")
        np.save("x.npy", np.array([[-1, 2, -3, 4]], np.float32))
        assert main(["dump", "-m", f"{name}.onnx", "-i", "x.npy", "-o", f"{name}.npz"]) == 0
    comparison = compare("b.npz", "a.npz")
    assert [row.source for row in comparison.rows] == ["net.py:40", "net.py:40"]
    assert not [finding for finding in comparison.findings() if finding.kind == "argument"]
    capsys.readouterr()
    assert main(["compare", "b.npz", "a.npz", "--html", "page.html"]) == 0
    assert "net.py:40" in Path("page.html").read_text()


def test_lines_of_torch_count_where_there_are_no_others() -> None:
    assert source_of_stack('File "/v/site-packages/torch/nn/modules/linear.py", line 7, in forward') == "linear.py:7"
    assert source_of_stack('File "C:\\\\code\\\\net.py", line 3, in f') == "net.py:3"
    assert source_of_stack("") == source_of_stack("nothing") == ""


def test_an_export_whose_names_say_nothing_pairs_by_the_modules_in_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``relu`` is head's on one side and body's on the other: the module decides, not the name."""
    monkeypatch.chdir(tmp_path)
    nodes = [("Relu", "body.act", "body"), ("Neg", "neg", "body.turn"), ("Relu", "head.act", "head")]

    def save(path: str, names: list[str]) -> None:
        reads = ["x", *names]
        own = [
            scoped(kind, [read], name, module, f"{module}.inner", "aten")
            for (kind, _, module), read, name in zip(nodes, reads, names)
        ]
        onnx.save(model(own, {}, {"x": (1, 4)}, names[-1:]).proto, path)

    save("old.onnx", ["relu", "neg", "relu_1"])
    save("new.onnx", ["val_0", "val_1", "relu"])
    for name in ("old", "new"):
        assert main(["pipeline", "full", "-m", f"{name}.onnx", "-o", name]) == 0
    comparison = compare("new", "old")
    assert {row.sample_name: row.name for row in comparison} == {"val_0": "relu", "val_1": "neg", "relu": "relu_1"}


def test_a_dump_whose_name_leaves_no_room_for_a_graph_is_opened(tmp_path: Path) -> None:
    dump = tmp_path / f"{'n' * 250}.npz"
    np.savez(dump, x=np.ones(3, np.float32))
    assert [record.name for record in open_dump(dump).records] == ["x"]
    assert "too long" in save_graph(GRAPH, dump)


@pytest.mark.parametrize("door", [open_dump, list_runs])
def test_a_name_that_the_system_does_not_take_is_one_line(door: Callable[[str], object]) -> None:
    with pytest.raises(FormatError, match=r"cannot read z+: .*too long"):
        door("z" * 300)


def test_a_run_whose_place_is_no_file_name_is_opened(tmp_path: Path) -> None:
    """The index tells what the run would have; its place is a name that the fuzzer made."""
    run = {"place": "x" * 300, "step": 0, "rank": 0, "graph": "net", "notes": [], "outputs": []}
    document = {"sgsdump_runs": 1, "complete": True, "notes": [], "graphs": {}}
    document["runs"] = [{**run, "tensors": [["y", "Relu", "float32", [2]]]}]
    (tmp_path / "runs.json").write_text(json.dumps(document))
    dump = open_dump(tmp_path)
    assert [record.name for record in dump.records] == ["y"]
    assert compare(dump, dump).failed
