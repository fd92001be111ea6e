"""The files ``sgsdump compare`` writes besides CSV and JSON: JUnit, Markdown, the annotated model; of two dumps, of
three, and of several runs."""

from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from small_nets import residual_net

import sgsdump
from sgsdump.cli import main
from sgsdump.dumps.dump import Dump, Record
from sgsdump.models.fixed_facts import FixedFacts, StoredTensor, write_facts
from sgsdump.tensors.tensor import Tensor

LAYERS = ("c1", "r1", "add")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model, and dumps of some of its layers."""
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    values = np.arange(1, 9, dtype=np.float32)
    for name, factor in (("good", 1.001), ("far", 1.5), ("same", 1)):
        tensors = [Tensor.of(layer, values * np.float32(factor)) for layer in LAYERS]
        dump = Dump([Record("out", 0, index, "Conv", tensor) for index, tensor in enumerate(tensors)])
        sgsdump.save_dump(dump, f"{name}.npz", format="npz", on_loss="ignore")
    return tmp_path


def figures(path):
    return {
        node.output[0]: {entry.key: entry.value for entry in node.metadata_props}
        for node in onnx.load(path).graph.node
        if node.metadata_props
    }


def test_two_dumps(folder, capsys):
    words = "--junit j.xml --markdown m.md --annotate net.onnx out.onnx --max-rmse 0.1"
    assert main(["compare", "far.npz", "same.npz", *words.split()]) == 1
    assert "Annotated model out.onnx: metrics of 3 layers added.\n" in capsys.readouterr().out
    suites = ElementTree.parse(folder / "j.xml").getroot()
    assert (suites.get("name"), suites.get("tests"), suites.get("failures")) == ("far.npz against same.npz", "3", "3")
    assert "| ❌ fail | 0 | `c1` | `Conv` | 0.500000 |" in (folder / "m.md").read_text(encoding="utf-8")
    found = figures("out.onnx")
    assert list(found) == list(LAYERS)
    assert found["c1"] == {
        "sgsdump.verdict": "fail",
        "sgsdump.rmse": "0.500000",
        "sgsdump.cos": "1.000000",
        "sgsdump.mse": "6.375000",
        "sgsdump.limits": "RMSE > 0.1",
    }


def test_markdown_lists_what_the_table_lists(folder):
    assert main("compare far.npz same.npz --top 1 --markdown m.md".split()) == 0
    text = (folder / "m.md").read_text(encoding="utf-8")
    assert text.count("❌") == 1 and "1 of 3 compared layers are listed." in text


def test_three_dumps(folder, capsys):
    words = "same.npz --format sdk --junit j.xml --markdown m.md --annotate net.onnx out.onnx"
    assert main(["judge", "far.npz", "good.npz", *words.split()]) == 1
    assert capsys.readouterr().out.startswith("index: 0 | add.npy | ")
    assert ElementTree.parse(folder / "j.xml").getroot().get("failures") == "3"
    assert "judged by same.npz" in (folder / "m.md").read_text(encoding="utf-8")
    assert figures("out.onnx")["c1"]["sgsdump.max_sw"] == "0.500000"


def test_several_runs_merged(folder):
    for side, source in (("x", "far"), ("y", "same")):
        (folder / side).mkdir()
        for run in range(2):
            (folder / side / f"{run}.npz").write_bytes((folder / f"{source}.npz").read_bytes())
    assert main("compare x y --runs --junit j.xml --annotate net.onnx out.onnx".split()) == 0
    assert figures("out.onnx")["add"]["sgsdump.mean_rmse"] == "0.500000"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--junit far.npz", "cannot write far.npz: this command reads or writes that file already"),
        ("--junit x --markdown x", "this command reads or writes that file already"),
        ("--annotate net.onnx net.onnx", "cannot write net.onnx: this command reads or writes that file already"),
        ("--annotate net.onnx no/out.onnx", "there is no folder no; make it first"),
        ("--annotate none.onnx out.onnx", "no such model file: none.onnx"),
        ("--annotate far.npz out.onnx", "far.npz is not an ONNX file"),
        ("--junit no/j.xml", "there is no folder no; make it first"),
    ],
)
def test_trouble_is_one_line_and_leaves_nothing(folder, words, said, capsys):
    before = {path.name for path in folder.iterdir()}
    assert main(["compare", "far.npz", "same.npz", "--csv", "t.csv", *words.split()]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before


def test_what_the_model_has_no_node_for_is_named(folder, capsys):
    sgsdump.save_dump({"c1": np.ones(3, np.float32), "other": np.ones(3, np.float32)}, "more.npz")
    assert main("compare more.npz more.npz --annotate net.onnx out.onnx".split()) == 0
    out = capsys.readouterr().out
    assert (
        "Annotated model out.onnx: metrics of 1 layer added.\n  compared layers without a node in the model (1):\n    "
        "other\n" in out
    )


def test_the_layers_of_a_fixed_model_are_at_their_integers(folder, capsys):
    """It has them under names of its own, which its metadata tell."""
    proto = onnx.load("net.onnx")
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["c1#stored" if name == "c1" else name for name in names]
    write_facts(FixedFacts({"c1": StoredTensor(np.dtype(np.uint8), 0.5, 0, "c1#stored", None)}, {}, {}, ()), proto)
    onnx.save(proto, "fixed.onnx")
    assert main("compare far.npz same.npz --annotate fixed.onnx out.onnx".split()) == 0
    assert "metrics of 3 layers added" in capsys.readouterr().out
    assert figures("out.onnx")["c1#stored"]["sgsdump.rmse"] == "0.500000"


def test_a_watchers_dump_takes_none_of_them(folder, capsys):
    for words in ("--junit j.xml", "--markdown m.md", "--annotate net.onnx o.onnx", "--html h.html", "--top 3"):
        assert main(["compare", "far.npz", *words.split()]) == 2
        assert "is for two dumps" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "suite"), [([], "far.npz against same.npz"), (["--suite", "nightly"], "nightly")])
def test_a_server_gets_the_suite_by_name_and_its_time(folder, given, suite):
    assert main(["compare", "far.npz", "same.npz", "--junit", "t.xml", *given]) == 0
    suites = ElementTree.parse("t.xml").getroot()
    assert [suites.get("name"), suites[0].get("name")] == [suite, suite]
    cases = list(suites.iter("testcase"))
    assert all(case.get("classname").startswith(suite) for case in cases)
    assert sum(float(case.get("time")) for case in cases) == pytest.approx(float(suites.get("time")), abs=1e-3)
    assert float(suites.get("time")) > 0


def test_a_named_cause_may_be_the_exit_status(folder):
    rng = np.random.default_rng(0)
    layers = {f"l{i}": rng.standard_normal((4, 64)).astype(np.float32) for i in range(6)}
    rounded = {name: values * np.float32(1 + 1e-7) for name, values in layers.items()}
    faulty = {**rounded, "l3": np.zeros_like(layers["l3"])}
    for name, arrays in (("good", layers), ("rounded", rounded), ("faulty", faulty)):
        np.savez(f"{name}.npz", **arrays)
    for sample, options, status in (
        ("good", ["--fail-on", "cause"], 0),
        ("rounded", ["--fail-on", "cause"], 0),
        ("faulty", ["--fail-on", "cause"], 1),
        ("faulty", ["--fail-on", "cause", "--max-rmse", "9"], 1),
        ("faulty", [], 0),
    ):
        assert main(["compare", f"{sample}.npz", "good.npz", *options]) == status, (sample, options)
