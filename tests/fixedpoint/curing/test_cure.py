"""The whole cure on a small network with one loud channel in each tensor, through the command and calibrate."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from json_documents import checked
from onnx import numpy_helper
from picture_folder import write_pictures
from platforms import unix_only
from small_nets import conv, model, node, run_all, weights

from sgsdump import progress
from sgsdump.cli import main
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.curing.cure import Cured, cure, prepared
from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.fixedpoint.curing.fold import AS_IT_IS, Fold, Made
from sgsdump.fixedpoint.curing.ranges import HEADROOM, widened
from sgsdump.fixedpoint.curing.reconstruction import Reconstructed, Wanted
from sgsdump.fixedpoint.curing.steps import CURES, CureOptions
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.sidecars import input_config, quant_param
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range


def loud_net(factor: float = 60.0) -> Model:
    """data -> c1 -> r1 -> c2 -> r2 -> c3, one channel of r1 and of r2 ``factor`` times as loud as its neighbours, which
    the next layer makes up for: 8 bits of one range leave the neighbours nothing."""
    constants = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (8, 8, 1, 1), 2), **weights("c3", (4, 8, 1, 1), 3)}
    for before, after in (("c1", "c2"), ("c2", "c3")):
        constants[f"{before}.w"][0] *= factor
        constants[f"{before}.b"][0] *= factor
        constants[f"{after}.w"][:, 0] /= factor
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        conv("c2", "r1"),
        node("Relu", ["c2"], "r2"),
        conv("c3", "r2"),
    ]
    return model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c3"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cure")
    write_pictures(path, 12)
    onnx.save(loud_net().proto, path / "net.onnx")
    return path


def opened(folder: Path) -> tuple[Model, PictureFeeds, input_config.InputConfig]:
    source = open_model(folder / "net.onnx")
    config = input_config.read(folder / "input_config.ini")
    return source, PictureFeeds(str(folder / "pictures"), None, tuple(graph_inputs(source.proto)), config), config


def test_equalising_takes_the_loud_channels_noise_away(folder: Path) -> None:
    cured = cure(*opened(folder), CureOptions("L2", ("equalise",)))
    (step,) = cured.steps
    assert step.taken and step.kept is not None and step.kept < 1e-4
    assert cured.errors["c3"] < 0.05 * cured.as_it_is["c3"]
    assert cured.params is None and cured.changed["c3"] < 1e-10
    feed = {"data": np.random.default_rng(9).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    before, after = run_all(open_model(folder / "net.onnx").proto, feed), run_all(cured.proto, feed)
    np.testing.assert_allclose(after["c3"], before["c3"], rtol=1e-4, atol=1e-4)


def test_the_command_writes_what_calibrate_takes(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    words = "cure -m net.onnx -i pictures --input-config input_config.ini -o cured.onnx --json cure.json"
    assert main(words.split()) == 0
    said, told = capsys.readouterr().out, checked(folder / "cure.json")
    assert told["gain"] < 1 and [step["cure"] for step in told["steps"] if step["taken"]]
    assert "12 images held out" in said and "cured.onnx: cured (" in said
    assert told["expected"]["c3"] > 0 and told["expected_gain"] > 0 and len(told["by_image"]) == 12
    calibrate = "calibrate -m cured.onnx -i pictures --input-config input_config.ini --quant-level L2"
    assert main([*calibrate.split(), "--quant-file", "cured.quant.json", "-o", "fixed.onnx"]) == 0
    assert main([*calibrate.split(), "-o", "plain.onnx"]) == 0
    entries = {param.name: param for param in quant_param.read(folder / "cured.quant.json")}
    same = quant_param.read(folder / "cured.quant.pkl")
    assert [(p.name, p.bit) for p in same] == [(p.name, p.bit) for p in entries.values()]
    fixed, plain = (read_facts(open_model(folder / f"{name}.onnx")) for name in ("fixed", "plain"))
    assert fixed is not None and plain is not None
    scales = [facts.tensors["c3"].quant.scale for facts in (fixed, plain)]
    assert scales[0] == pytest.approx(HEADROOM * scales[1], rel=1e-6)
    # Without the weights' ranges the SDK makes weights of one scale wherever it is given a quant file.
    assert "data" in entries and np.size(entries["c2.w"].range.min) == 8


def test_diagnose_proposes_the_cure_first(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    words = (
        "diagnose -m net.onnx -i pictures --input-config input_config.ini --quant-level L2 --cure -o d --max-images 1"
    )
    assert main(words.split()) == 0
    said = capsys.readouterr().out
    assert said.index("Use the cured model before raising anything") < said.index(
        "Copy these lines into input_config.ini"
    )
    assert "--quant-level L2 --quant-file d/cured.quant.json" in said
    assert (folder / "d" / "cured.onnx").is_file() and (folder / "d" / "cured.quant.pkl").is_file()
    page = (folder / "d" / "report.html").read_text()
    assert "before raising anything" in page
    data = json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    drawn = dict(zip([layer["name"] for layer in data["layers"]], data["other"]["figures"]))
    now = {layer["name"]: layer["rmse"] for layer in data["layers"]}
    assert data["other"]["label"].startswith("cured") and drawn["c3"][2] < 0.3 * now["c3"]
    assert (
        "Output errors at level L2 on the same images" in said
        and "unchanged with all convolutions at INT16: c3 " in said
    )
    assert main([*words.replace("-o d", "-o e").split(), "--ranges", "d/cured.quant.json"]) == 2
    assert "leave --fixed and --ranges out" in capsys.readouterr().err


@pytest.fixture(scope="module")
def louder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a network that 8 bits ruin, and that needs 16 for one convolution once it is cured."""
    path = tmp_path_factory.mktemp("louder")
    write_pictures(path, 12)
    onnx.save(loud_net(20_000.0).proto, path / "net.onnx")
    return path


def test_a_plan_goes_onto_the_cured_model(louder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(louder)
    words = "-m net.onnx -i pictures --input-config input_config.ini"
    assert main(f"diagnose {words} --quant-level L2 --cure -o d --max-images 1".split()) == 0
    said = capsys.readouterr().out
    ways = dict(re.findall(r"(unchanged[^:;]*|cured[^:;]*): c3 ([\de.-]+)", said[said.index("on the same images") :]))
    plan = next(float(error) for way, error in ways.items() if "of 3 convolutions at INT16" in way)
    assert plan < 0.1 * float(ways["cured"]) < 0.05 * float(ways["unchanged"])
    fixed = f"calibrate {words.replace('net.onnx', 'd/planned.onnx')} --quant-level L2 -o planned.onnx"
    assert main([*fixed.split(), "--quant-file", "d/planned.quant.json"]) == 0
    facts = read_facts(open_model("planned.onnx"))
    assert facts is not None and facts.tensors["r2"].quant.dtype == np.int16


@pytest.mark.parametrize("command", ["tune --budget 60s", "tune --first --rounds 2"])
def test_tune_starts_from_the_cured_model(louder: Path, monkeypatch, capsys, command: str) -> None:
    monkeypatch.chdir(louder)
    name = "out"
    words = f"{command} -m net.onnx -i pictures --input-config input_config.ini --quant-level L2 --cure -o {name}"
    assert main(words.split()) == 0
    assert "before anything is raised: cured" in "".join(capsys.readouterr())
    cured, plain = (open_model(path) for path in (f"{name}/cured.onnx", "net.onnx"))
    feed = {"data": np.random.default_rng(9).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    expected = run_all(plain.proto, feed)["c3"]
    np.testing.assert_allclose(run_all(cured.proto, feed)["c3"], expected, rtol=1e-3, atol=1e-3)
    if name == "tune":  # the float model is kept, so its errors are those of the network as it was
        again = (
            "calibrate -m tune/cured.onnx -i pictures --input-config tune/input_config.ini --quant-level L2 -o t.onnx"
        )
        assert main([*again.split(), "--quant-file", "tune/optimized_quant_info.json"]) == 0


def test_rounded_weights_lie_on_the_grid_that_calibrating_finds(folder: Path) -> None:
    cured = cure(*opened(folder), CureOptions("L2", ("round", "bias")))
    names = {step.cure for step in cured.steps if step.taken}
    assert names, "on a network like this one of them helps"
    if "round" in names:
        values = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in cured.proto.graph.initializer}
        steps = [values[n] / (np.abs(values[n]).max(axis=(1, 2, 3), keepdims=True) / 127) for n in ("c2.w", "c3.w")]
        assert any(np.allclose(each, np.rint(each), atol=1e-3) for each in steps)


@pytest.mark.parametrize("wanted", [Wanted(False, True, True), Wanted(True, True, True)])
def test_biases_make_up_for_the_layers_before(folder: Path, wanted: Wanted, monkeypatch) -> None:
    """Of a network in integers, on the pictures it was fitted to, the mean of each channel is the float model's."""
    source, feeds, config = opened(folder)
    pairs, silent = PicturePairs(feeds), progress.SILENT
    fold = Fold(prepared(source, feeds), config, CureOptions("L2", ("bias",)), pairs, silent)
    pictures = [pairs.make(i) for i in range(len(pairs))]

    def means(proto: onnx.ModelProto) -> np.ndarray:
        graph = FixedOutputs(fold.opened(proto), fold.fixed(Made(proto), AS_IT_IS).proto, ["c3"])
        off = [graph.run(p.feed, p.raw)["c3"] - run_all(source.proto, p.feed)["c3"] for p in pictures]
        return np.abs(np.mean(off, axis=(0, 1, 3, 4)))

    proto = fold.source.proto

    def made(wanted: Wanted) -> onnx.ModelProto:
        settings = replace(AS_IT_IS, inherited=wanted.inherited)
        return fold.with_cure("round" if wanted.rounding else "bias", Made(proto), settings)[0].proto

    plain, own, inherited = (means(each) for each in (proto, made(replace(wanted, inherited=False)), made(wanted)))
    assert inherited.max() < 0.4 * own.max() and own.max() < plain.max()
    one, several = [], []
    for number, kept in ((1, one), (3, several)):
        monkeypatch.setattr("sgsdump.fixedpoint.curing.reconstruction.cores", lambda number=number: number)
        kept += [made(replace(wanted, inherited=way)).SerializeToString() for way in (False, True)]
    assert one == several, "whatever the machine has"


@pytest.mark.parametrize("inherited, count", [(False, 4), (True, 2)])
def test_what_runs_the_network_again_and_again_has_fewer_pictures(folder, monkeypatch, inherited, count) -> None:
    source, feeds, config = opened(folder)
    pairs = PicturePairs(feeds)
    fold = Fold(prepared(source, feeds), config, CureOptions(), pairs, progress.SILENT)
    monkeypatch.setattr("sgsdump.fixedpoint.curing.fold.REBUILT", 4)
    monkeypatch.setattr("sgsdump.fixedpoint.curing.fold.INHERITED", 2)
    given = []
    monkeypatch.setattr(
        "sgsdump.fixedpoint.curing.fold.reconstructed",
        lambda proto, *rest: given.append(len(rest[2])) or Reconstructed(proto, (), ()),
    )
    fold.with_cure("bias", Made(fold.source.proto), replace(AS_IT_IS, inherited=inherited))
    assert given == [count]


def test_a_matrix_product_has_its_bias_in_what_is_added() -> None:
    rng = np.random.default_rng(0)
    constants = {
        name: rng.normal(size=size).astype(np.float32) for name, size in (("w", (4, 6)), ("b", 6), ("v", (6, 3)))
    }
    nodes = [node("MatMul", ["data", "w"], "m"), node("Add", ["b", "m"], "a"), node("MatMul", ["a", "v"], "n")]
    editing = Editing(model(nodes, constants, {"data": (1, 5, 4)}, ["n"]).proto)
    first, _, second = editing.graph.nodes
    assert editing.add_to_bias(first, np.arange(6.0)) and not editing.add_to_bias(second, np.ones(3))
    feed = {"data": rng.normal(size=(1, 5, 4)).astype(np.float32)}
    expected = (feed["data"] @ constants["w"] + constants["b"] + np.arange(6)) @ constants["v"]
    np.testing.assert_allclose(run_all(editing.proto, feed)["n"], expected, rtol=1e-4, atol=1e-4)


def test_what_does_not_help_is_left_out_and_said(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    write_pictures(tmp_path, 12)
    onnx.save(loud_net(1.0).proto, tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    words = "cure -m net.onnx -i pictures --input-config input_config.ini --cures fold"
    assert main(words.split()) == 0
    assert "no improvement found; the model is unchanged" in capsys.readouterr().out
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    before, after = (run_all(onnx.load(tmp_path / f), feed)["c3"] for f in ("net.onnx", "net_cured.onnx"))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--cures equalize", "unknown cure 'equalize'; did you mean 'equalise'?"),
        ("--validate pictures/0.png", "pictures/0.png, which is also in -i."),
        ("-o cured.prototxt", "the cured model is ONNX"),
        ("-o net.onnx", "net.onnx"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(folder: Path, monkeypatch, capsys, words: str, message: str) -> None:
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    line = f"cure -m net.onnx -i pictures --input-config input_config.ini {words}"
    assert main(line.split()) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
    assert len(said) == 1 and message in said[0]
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_folder_that_is_not_there_is_told_before_the_work(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sgsdump.fixedpoint.verbs.cure.cured", lambda *_: pytest.fail("minutes of work first"))
    assert main("cure -m net.onnx -i pictures --input-config input_config.ini -o no/c.onnx".split()) == 2
    assert "there is no folder no; make it first" in capsys.readouterr().err


def test_there_is_no_other_cure() -> None:
    with pytest.raises(ConfigError):
        CureOptions("L2", ("absorption", *CURES))


def test_only_what_is_computed_gets_room(folder: Path) -> None:
    source = open_model(folder / "net.onnx")
    measured = Range.of(-1.0, 2.0)
    found = widened(source, {"data": measured, "c1.w": measured, "r1": measured, "c3": measured}, {"r1": 1.2})
    assert found["data"] is measured and found["c1.w"] is measured
    assert (found["r1"].low, found["r1"].high) == (-1.2, 2.4)
    assert found["c3"].high == 2.0 and replace(found["c3"]).wide is not None
    assert found["c3"].wide is not None and found["c3"].wide.high == 2.0 * HEADROOM


def test_a_cured_model_and_its_ranges_are_written_together(tmp_path):
    cured = Cured(loud_net().proto, (), (), {}, {}, 1, True, {}, (loud_net().proto, ()))
    cured.save(tmp_path / "net.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "net.quant.json", "net.quant.pkl"}
    replace(cured, params=None).save(tmp_path / "net.onnx")  # those of an older model would be taken for its own
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def _killed_at(run, stop: int, file: Path) -> int:
    """Run in a process of its own that dies, as by SIGKILL, at its ``stop``-th rename, removal or opening to write."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if writes or event in ("os.rename", "os.remove"):
                count += 1
                if count == stop:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(hook)
            run()
            os.write(ready := os.open(file, os.O_CREAT | os.O_WRONLY), str(count).encode())
            os.close(ready)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return int(file.read_text()) if status == 0 else 0


@unix_only
def test_killed_at_any_write_what_is_there_is_whole_and_a_rerun_starts_clean(tmp_path: Path) -> None:
    """At each opening to write, rename and removal, those at the end that put the files into their place too."""
    first, second = loud_net().proto, loud_net(2.0).proto
    params = [(QuantParam("r1", Range.of(0.0, high), 8),) for high in (1.0, 2.0)]
    older, newer = (
        Cured(proto, param, (), {}, {}, 1, True, {}, (proto, ())) for proto, param in zip((first, second), params)
    )
    folder = tmp_path / "work"
    folder.mkdir()
    whole = _killed_at(lambda: newer.save(folder / "net.onnx"), 10**9, tmp_path / "count")
    assert whole >= 6, "three files are opened and renamed"
    for stop in range(1, whole + 1):
        shutil.rmtree(folder)
        folder.mkdir()
        older.save(folder / "net.onnx")
        assert _killed_at(lambda: newer.save(folder / "net.onnx"), stop, tmp_path / "none") == 0
        kept = onnx.load(folder / "net.onnx")
        assert kept.graph in (first.graph, second.graph)
        for ending in ("json", "pkl"):
            (entry,) = quant_param.read(folder / f"net.quant.{ending}")
            assert entry.range.high in (1.0, 2.0)
        newer.save(folder / "net.onnx")
        assert onnx.load(folder / "net.onnx").graph == second.graph
        assert [quant_param.read(folder / f"net.quant.{e}")[0].range.high for e in ("json", "pkl")] == [2.0, 2.0]
        assert len(list(folder.iterdir())) == 3, "what was begun is swept away"
