"""What a domain's 8 bits bring by its input and by its weights, the channels at fault, and what is said of an error
that is within the limits; numpy's own rounding is the oracle."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import model, node

from sgsdump.cli import main
from sgsdump.comparison.finding import Finding
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.reports.cause_sentences import _contributions, source_lines
from sgsdump.fixedpoint.tuning.causes import contributed
from sgsdump.fixedpoint.tuning.sensitivity_analysis import SensitivityAnalysis, loud_channel
from sgsdump.sidecars.input_config import InputConfig

ROWS, INPUTS, HIDDEN, OUTPUTS = 6, 16, 24, 8
CHANNEL, ROW = 3, 5


def drawn(loud_input=1.0, loud_row=1.0):
    """Weights of x -> a -> Relu -> b; a loud channel of the Relu is taken back by b, which computes the same."""
    rng = np.random.default_rng(7)
    a, b = rng.normal(0, 0.3, (INPUTS, HIDDEN)), rng.normal(0, 0.3, (HIDDEN, OUTPUTS))
    a[:, CHANNEL] *= loud_input
    b[CHANNEL] /= loud_input
    b[:, ROW] *= loud_row
    return a.astype(np.float32), b.astype(np.float32)


def net_of(a, b):
    nodes = [node("MatMul", ["x", "a"], "first"), node("Relu", ["first"], "h"), node("MatMul", ["h", "b"], "y")]
    return model(nodes, {"a": a, "b": b}, {"x": (1, ROWS, INPUTS)}, ["y"])


def feeds(count=4):
    return [
        {"x": np.random.default_rng(seed).normal(0, 1, (1, ROWS, INPUTS)).astype(np.float32)} for seed in range(count)
    ]


def rounded(values, low, high, levels):
    step = (high - low) / levels
    return np.round(values / step) * step


@pytest.mark.parametrize(
    ("loud_input", "loud_row", "larger"),
    [(1.0, 1.0, None), (16.0, 1.0, "inputs"), (1.0, 16.0, "weights")],
)
def test_input_and_weights_are_told_apart_by_rounding_each_alone(loud_input, loud_row, larger):
    a, b = drawn(loud_input, loud_row)
    net = simplify(net_of(a, b))
    labelled = [(str(i), feed, feed) for i, feed in enumerate(feeds())]
    ranges = measure_ranges(net, [(label, feed) for label, feed, _ in labelled])
    found = SensitivityAnalysis(net, ranges, InputConfig(())).contributions("y", labelled)

    hidden = np.concatenate([np.maximum(feed["x"] @ a, 0) for feed in feeds()]).astype(np.float64)
    y = hidden @ b
    by_input = rounded(hidden, 0, hidden.max(), 255) @ b
    by_weights = hidden @ rounded(b, -np.abs(b).max(), np.abs(b).max(), 254)
    # INT16 weights of which one row is loud leave the sums of the others few of their bits, which comes on top.
    plain = np.abs(by_input - y).sum() / np.abs(y).sum()
    assert 0.9 * plain < found.inputs < (1.1 if loud_row == 1 else 1.5) * plain
    assert found.weights == pytest.approx(np.abs(by_weights - y).sum() / np.abs(y).sum(), rel=0.1)

    channel = found.channel and (found.channel.index, found.channel.count)
    row = found.row and (found.row.index, found.row.count)
    assert channel == ((CHANNEL, HIDDEN) if larger == "inputs" else None)
    assert row == ((ROW, OUTPUTS) if larger == "weights" else None)
    if larger == "inputs":
        assert found.inputs > 2 * found.weights
        assert found.channel.reach == pytest.approx(hidden[..., CHANNEL].max(), rel=1e-5)
    if larger == "weights":
        assert found.row.others == pytest.approx(np.median(np.delete(np.abs(b).max(axis=0), ROW)), rel=1e-6)


def test_weights_of_a_scale_for_each_channel_have_no_loud_one():
    net = simplify(net_of(*drawn(loud_row=16.0)))
    labelled = [(str(i), feed, feed) for i, feed in enumerate(feeds())]
    ranges = measure_ranges(net, [(label, feed) for label, feed, _ in labelled])
    analysis = SensitivityAnalysis(net, ranges, InputConfig(()), per_channel=True)
    assert analysis.contributions("y", labelled).row is None


@pytest.mark.parametrize(("apart", "row"), [(1000.0, None), (1050.0, ROW)])
def test_weights_whose_channels_are_too_far_apart_have_one_scale_at_every_level(apart, row):
    a, b = drawn(loud_row=16.0)
    b[:, 0] *= np.abs(b[:, ROW]).max() / np.abs(b[:, 0]).max() / apart
    net = simplify(net_of(a, b))
    labelled = [(str(i), feed, feed) for i, feed in enumerate(feeds())]
    ranges = measure_ranges(net, [(label, feed) for label, feed, _ in labelled])
    found = SensitivityAnalysis(net, ranges, InputConfig(()), per_channel=True).contributions("y", labelled)
    assert (found.row and found.row.index) == row and found.one_scale == (row is not None)
    finding = contributed(Finding("part", "y", facts={"input": "h", "reason": "8 bits"}), found, 1.0)
    said = "\n".join(_contributions(finding))
    anyway = f"(one scale at every level because channels differ more than 1024 times), output channel {ROW} of"
    assert (anyway in said) == (row is not None)


@pytest.mark.parametrize(("weights", "place"), [(0.2, "weights of y (FC). "), (0.19, "tensor h, input of y (FC). ")])
def test_the_headline_names_the_weights_where_they_bring_twice_as_much(weights, place):
    figures = {"gives_back": 0.5, "brings": 0.6, "own": 0.1, "inherited": 0.1}
    figures |= {"input_brings": 0.1, "weights_bring": weights}
    finding = Finding("cause", "y", "FC", figures, facts={"input": "h", "reason": "8 bits"})
    assert next(source_lines([finding])).startswith(f"Cause: {place}")


def test_a_channel_is_loud_beside_half_of_the_others():
    assert loud_channel(np.array([1.0, 1, 1, 4])).index == 3
    assert loud_channel(np.array([1.0, 1, 1, 3.9])) is None
    assert loud_channel(np.array([1.0, 1, 4])) is None, "too few to tell"
    assert loud_channel(np.array([0.0, 0, 0, 4])) is None, "all others are zero"
    assert loud_channel(np.array([1.0, 1, np.inf, 4])) is None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for index, feed in enumerate(feeds()):
        np.savez(f"runs/{index}.npz", **feed)
    return tmp_path


def diagnosed(capsys, *options):
    status = main(["diagnose", "-m", "net.onnx", "-i", "runs", "-o", "d", "--quant-level", "L1", *options])
    lines = capsys.readouterr().out.splitlines()
    return status, lines, json.loads(Path("d/layers.json").read_text())["findings"]


def test_of_an_error_within_the_limits_the_largest_part_is_named(folder, capsys):
    onnx.save(net_of(*drawn(16.0, 16.0)).proto, "net.onnx")
    status, lines, findings = diagnosed(capsys, "--max-rmse", "0.5")
    (part,) = [finding for finding in findings if finding["kind"] == "part"]
    assert status == 0 and not [finding for finding in findings if finding["kind"] in ("cause", "advice")]
    figures = part["figures"]
    assert (part["layer"], part["facts"]["input"]) == ("y", "h")
    assert figures["left"] < figures["error"] and (figures["channel"], figures["row"]) == (CHANNEL, ROW)
    said = "\n".join(lines)
    assert lines[0].startswith("PASS: ") and lines[1] == "No cause: no layer exceeds the limits."
    assert "Its largest part comes from " in said
    assert f"removes {100 * figures['gives_back']:.0f} % of the error" in said
    assert f"Input channel {CHANNEL} of {HIDDEN} has absolute values up to " in said
    assert f"In the weights (one scale), output channel {ROW} of {OUTPUTS} has absolute values up to " in said
    assert "Its largest part comes from " in Path("d/report.html").read_text()


def test_nothing_is_named_of_an_error_that_is_small_beside_the_limit(folder, capsys):
    onnx.save(net_of(*drawn()).proto, "net.onnx")
    _, lines, findings = diagnosed(capsys, "--max-rmse", "0.9")
    assert not [finding for finding in findings if finding["kind"] == "part"]
    assert not any("largest part" in line or "spread" in line for line in lines)


def test_a_cause_is_told_apart_too(folder, capsys):
    onnx.save(net_of(*drawn(loud_input=16.0)).proto, "net.onnx")
    _, lines, findings = diagnosed(capsys, "--max-rmse", "0.001")
    cause = next(finding for finding in findings if finding["kind"] == "cause")
    assert cause["facts"]["input"] == "h" and cause["figures"]["input_brings"] > 2 * cause["figures"]["weights_bring"]
    assert any(
        line.startswith("Contributions to the output error (float approximation): 8-bit input ") for line in lines
    )


def test_what_has_16_bits_already_is_no_cause(folder, capsys):
    """Of two inputs with a loud channel the user has raised one: what is left comes from the other."""
    a, b = drawn(loud_input=16.0, loud_row=16.0)
    nodes = [node("MatMul", ["x", "a"], "first"), node("Relu", ["first"], "h"), node("MatMul", ["h", "b"], "next")]
    nodes.append(node("MatMul", ["next", "c"], "y"))
    c = np.random.default_rng(8).normal(0, 0.3, (OUTPUTS, OUTPUTS)).astype(np.float32)
    c[ROW] /= 16
    onnx.save(model(nodes, {"a": a, "b": b, "c": c}, {"x": (1, ROWS, INPUTS)}, ["y"]).proto, "net.onnx")
    diagnosed(capsys)
    text = Path("d/input_config.ini").read_text().partition("[CONV_CONFIG]")[0]
    Path("given.ini").write_text(f"{text}\n[CONV_CONFIG]\ntensor_arrays='h';\n")
    _, lines, findings = diagnosed(capsys, "--max-rmse", "0.0001", "--input-config", "given.ini")
    assert [finding["facts"]["input"] for finding in findings if finding["kind"] == "cause"] == ["next"]
    assert lines[1].startswith("Cause: ") and "next" in lines[1] and "of y" in lines[1]


@pytest.mark.parametrize(("limit", "kind"), [("0.001", "cause"), ("0.5", "part")])
def test_explain_tells_them_apart_as_diagnose_does(folder, capsys, limit, kind):
    onnx.save(net_of(*drawn(16.0, 16.0)).proto, "net.onnx")
    _, lines, diagnosed_findings = diagnosed(capsys, "--max-rmse", limit)
    assert main(["calibrate", "-m", "net.onnx", "-i", "runs", "--quant-level", "L1", "-o", "fixed.onnx"]) == 0
    capsys.readouterr()
    words = [
        "tune",
        "--explain",
        "--ranges",
        "log/tensor_min_max.txt",
        "-m",
        "net.onnx",
        "-i",
        "runs",
        "--quant-level",
        "L1",
    ]
    assert main([*words, "--max-rmse", limit, "--json", "advice.json"]) == 0
    said = capsys.readouterr().out
    of_both = (diagnosed_findings, json.loads(Path("advice.json").read_text())["findings"])
    # diagnose names before it that the weights have one scale
    (by_diagnose,), (by_explain,) = (
        [f for f in found if f["kind"] == kind and f["facts"]["reason"] != "weights per tensor"] for found in of_both
    )
    assert by_explain["layer"] == by_diagnose["layer"] == "y"
    assert by_explain["figures"] == pytest.approx(by_diagnose["figures"], rel=0.05)
    if kind == "part":
        assert (
            next(
                line for line in lines if line.startswith("Contributions to the output error (float approximation): 8-")
            )
            in said
        )
