"""The first line's figures are runs in the hardware's integers. The oracle is the fixed model that ``calibrate`` makes
with the named inputs at INT16, run by onnxruntime."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import model, node

from sgsdump.cli import main
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs

SIZE, ROWS, BRANCHES, DEPTH = 16, 6, 4, 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for index in range(6):
        x = np.random.default_rng(index).normal(0, 1, (1, ROWS, SIZE))
        np.savez(f"runs/{index}.npz", x=x.astype(np.float32))
    return tmp_path


def chain(depth, loud=None):
    """MatMul and Relu, ``depth`` times; the input of layer ``loud`` has a channel that is 40 times as loud."""
    rng = np.random.default_rng(3)
    constants = {f"w{n}": rng.normal(0, 1.4 / SIZE**0.5, (SIZE, SIZE)).astype(np.float32) for n in range(depth)}
    if loud is not None:
        constants[f"w{loud - 1}"][:, 3] *= 40
        constants[f"w{loud}"][3] /= 40
    nodes, name = [], "x"
    for n in range(depth):
        last = n == depth - 1
        nodes.append(node("MatMul", [name, f"w{n}"], "y" if last else f"m{n:02}"))
        if not last:
            nodes.append(node("Relu", [f"m{n:02}"], f"h{n:02}"))
        name = f"h{n:02}"
    return model(nodes, constants, {"x": (1, ROWS, SIZE)}, ["y"])


def branches():
    """The sum of BRANCHES branches, each with a channel that is 40 times as loud before its second MatMul."""
    rng = np.random.default_rng(5)
    constants, nodes = {}, []
    first, second = (rng.normal(0, 1 / SIZE**0.5, (SIZE, SIZE)).astype(np.float32) for _ in "ab")
    for n in range(BRANCHES):
        a, b = first.copy(), np.roll(second, n, axis=1)
        a[:, 3] *= 40
        b[3] /= 40
        constants |= {f"a{n}": a, f"b{n}": b}
        nodes += [
            node("MatMul", ["x", f"a{n}"], f"m{n}"),
            node("Relu", [f"m{n}"], f"h{n}"),
            node("MatMul", [f"h{n}", f"b{n}"], f"s{n}"),
        ]
    nodes += [node("Add", ["s0", "s1"], "t"), node("Add", ["s2", "s3"], "u"), node("Add", ["t", "u"], "y")]
    return model(nodes, constants, {"x": (1, ROWS, SIZE)}, ["y"])


def diagnosed(capsys, *options):
    main(["diagnose", "-m", "net.onnx", "-i", "runs", "-o", "d", "--quant-level", "L2", *options])
    lines = capsys.readouterr().out.splitlines()
    findings = json.loads(Path("d/layers.json").read_text())["findings"]
    (output,) = [finding for finding in findings if finding["kind"] == "output"]
    return lines, findings, output["figures"]["rmse"]


def error_with(*names):
    """The output's error, calibrated again with these inputs at INT16."""
    text = Path("d/input_config.ini").read_text().partition("[CONV_CONFIG]")[0]
    Path("raised.ini").write_text(f"{text}\n[CONV_CONFIG]\ntensor_arrays='{','.join(names)}';\n")
    words = "calibrate -m net.onnx -i runs --input-config raised.ini --quant-level L2 -o raised.onnx"
    assert main(words.split()) == 0
    fixed, real = (run_each(path) for path in ("raised.onnx", "net.onnx"))
    return np.abs(fixed - real).sum() / np.abs(real).sum()


def run_each(path):
    """Return output ``y`` of the model for every file in ``runs``, as float64."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = [{"x": np.load(file)["x"]} for file in sorted(Path("runs").iterdir())]
    return np.concatenate([session.run(["y"], feed)[0] for feed in feeds]).astype(np.float64)


@pytest.mark.parametrize(("limit", "kind"), [("0.01", "cause"), ("0.9", "part")])
def test_what_is_named_was_run_alone_in_integers(folder, capsys, limit, kind):
    onnx.save(chain(6, loud=3).proto, "net.onnx")
    lines, findings, error = diagnosed(capsys, "--max-rmse", limit)
    first = next(finding for finding in findings if finding["kind"] == kind)
    assert first["facts"]["input"] == "h02"
    left = error_with("h02")
    assert first["figures"]["left"] == pytest.approx(left, rel=1e-6)
    assert first["figures"]["gives_back"] == pytest.approx(1 - left / error, rel=1e-6)
    assert any(f"removes {100 * (1 - left / error):.0f} % of the error" in line for line in lines)


def test_an_error_of_many_small_parts_is_said_to_be_spread(folder, capsys):
    onnx.save(chain(DEPTH).proto, "net.onnx")
    lines, findings, error = diagnosed(capsys, "--max-rmse", "0.3")
    (spread,) = [finding for finding in findings if finding["kind"] in ("cause", "part", "spread")]
    inputs = [f"h{n:02}" for n in range(DEPTH - 1)]
    assert all(error_with(name) > 0.8 * error for name in inputs)
    of = {"y" if n == DEPTH - 2 else f"m{n + 1:02}": f"h{n:02}" for n in range(DEPTH - 1)}
    count, raised = len(spread["names"]), [of[name] for name in spread["names"]]
    left = error_with(*raised)
    assert spread["figures"]["left"] == pytest.approx(left, rel=1e-6)
    gain = 0.8 * (error - error_with(*inputs))
    assert error - left >= gain > error - error_with(*raised[:-1])
    said = next(line for line in lines if line.startswith("The error is spread over "))
    assert re.search(
        rf"spread over {count} convolutions\. .* to INT16 removes \d+ % of the error; "
        r"raising only one of these inputs removes less",
        said,
    )


def test_a_few_that_remove_most_together_are_named(folder, capsys):
    """Of four equal errors each alone takes away 1 - sqrt(3/4), less than a fifth."""
    onnx.save(branches().proto, "net.onnx")
    lines, findings, error = diagnosed(capsys, "--max-rmse", "0.01")
    causes = [finding for finding in findings if finding["kind"] == "cause"]
    assert {cause["facts"]["input"] for cause in causes} == {f"h{n}" for n in range(BRANCHES)}
    assert all(cause["figures"]["gives_back"] < 0.2 for cause in causes)
    left = error_with(*(f"h{n}" for n in range(BRANCHES)))
    assert causes[0]["figures"]["together"] == pytest.approx(1 - left / error, rel=1e-6)
    said = next(
        line
        for line in lines
        if line.startswith(f"Cause: {BRANCHES} tensors that cause the error together, among them h")
    )
    assert f"raising all these tensors to INT16 removes {100 * (1 - left / error):.0f} % of the error" in said
    assert any(line.startswith("Tensors raised to INT16 together with h") and ": h" in line for line in lines)


@pytest.mark.parametrize("worse", [(), ("y",)])
def test_a_plan_that_makes_an_output_worse_is_neither_advised_nor_written(folder, capsys, monkeypatch, worse):
    monkeypatch.setattr(PlanOutputs, "worse_than", lambda self, before: worse)
    onnx.save(chain(6, loud=3).proto, "net.onnx")
    lines, findings, _ = diagnosed(capsys, "--max-rmse", "0.01")
    advised = [finding for finding in findings if finding["kind"] == "advice"]
    assert bool(advised) == ("h02" in Path("d/input_config.ini").read_text()) == (not worse)
    assert any(line.startswith("Copy these lines into input_config.ini") for line in lines) == (not worse)
