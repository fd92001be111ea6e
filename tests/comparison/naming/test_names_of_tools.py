"""Names of PyTorch, ExecuTorch, TensorRT and onnx2tf against those of the ONNX model; look-alikes that must not pair.

``names.json`` has the names and shapes that the tools gave to the tensors of one network, and a number for each set of
tensors with equal values. The values are made here from the number: a pair of unequal tensors shows as an error.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from sgsdump import Dump, Record, Tensor, compare, open_dump
from sgsdump.cli import main
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.onnx_network import of_nodes
from sgsdump.reports.comparison import REPORTS

VENDORS = Path(__file__).resolve().parents[2] / "golden" / "vendors"
NAMES = json.loads((VENDORS / "names" / "names.json").read_text())
TFLITE = VENDORS / "tflite"
# Pairs of each tool with the model as exported and with folded normalisations.
COUNTS = {"pytorch": (33, 25), "executorch": (35, 27), "tensorrt": (13, 13)}
PLANTED = "/res1/Add_output_0"


@cache
def values(number: int, count: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=count).astype(np.float32)


def named(tool: str, changed: int | None = None) -> Dump:
    tensors = [
        Tensor.of(name, values(number, int(np.prod(shape))).reshape(shape) + np.float32(number == changed))
        for name, (number, shape) in NAMES[tool].items()
    ]
    return Dump([Record("out", 0, index, "", tensor) for index, tensor in enumerate(tensors)])


def numbers(tool: str) -> dict[str, int]:
    return {name: number for name, (number, _) in NAMES[tool].items()}


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("tool", COUNTS)
def test_names_of_a_tool_pair_with_the_models(tool: str, folded: bool, swap: bool) -> None:
    model = "onnx_folded" if folded else "onnx"
    names = (model, tool) if swap else (tool, model)
    found = compare(*map(named, names))
    sample, benchmark = map(numbers, names)
    assert len(found.rows) == COUNTS[tool][folded] and not found.failed
    assert all(sample[row.sample_name] == benchmark[row.name] and row.mse == 0 for row in found.rows)
    assert {row.paired for row in found.rows} <= {"module and operator", "normalised name"}


def test_a_model_with_folded_normalisations_pairs_after_them() -> None:
    """The convolutions have equal names in both models, and different values."""
    found = compare(named("onnx"), named("onnx_folded"))
    assert len(found.rows) == len(NAMES["onnx_folded"]) and all(row.mse == 0 for row in found.rows)
    pairs = {row.name: (row.sample_name, row.paired) for row in found.rows}
    after = ("/block1/bn/BatchNormalization_output_0", "module and operator")
    assert pairs["/block1/conv/Conv_output_0"] == after
    assert "compared after BatchNormalization" in found["/block1/conv/Conv_output_0"].note
    (reason,) = {each.reason for each in found.only_in_sample if each.record.name.endswith("/Conv_output_0")}
    assert reason.startswith("values before BatchNormalization, which the benchmark folds into its conv")


def test_the_report_says_by_which_way_tensors_are_paired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("onnx", "onnx_folded"):
        np.savez(tmp_path / f"{name}.npz", **{each.name: each.tensor.real() for each in named(name).records})
    assert main(["compare", *(str(tmp_path / f"{name}.npz") for name in ("onnx", "onnx_folded"))]) == 0
    assert "Paired tensors: 21 by name, 8 by module and operator." in capsys.readouterr().out


@pytest.mark.parametrize("tool", COUNTS)
def test_a_planted_difference_is_named(tool: str) -> None:
    number = numbers("onnx_folded")[PLANTED]
    found = compare(named(tool, number), named("onnx_folded"))
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and PLANTED in verdict.splitlines()[1]
    assert found[PLANTED].mse == pytest.approx(1, rel=1e-5)
    assert [row.name for row in found.rows if row.mse] == [PLANTED]


@pytest.mark.parametrize("swap", [False, True])
def test_modules_pair_with_the_operators_of_another_tool(swap: bool) -> None:
    """The indices of a MaxPool are no output of its module."""
    names = ("pytorch", "executorch") if swap else ("executorch", "pytorch")
    found = compare(*map(named, names))
    sample, benchmark = map(numbers, names)
    assert len(found.rows) == 34 and not found.failed
    assert all(sample[row.sample_name] == benchmark[row.name] and row.mse == 0 for row in found.rows)


def test_names_of_modules_may_have_a_common_prefix_and_need_company() -> None:
    module = named("pytorch")
    prefixed = [
        Record("out", 0, index, "", Tensor.of(f"model.{record.name}", record.tensor.real()))
        for index, record in enumerate(module.records)
    ]
    assert len(compare(Dump(prefixed), named("onnx_folded")).rows) == COUNTS["pytorch"][True]
    one = [record for record in module.records if record.name in ("block1.conv", "net")]
    assert not compare(Dump(one), named("onnx_folded")).rows


def test_numbered_tensors_are_no_modules_of_a_sequential() -> None:
    model = [Tensor.of(f"/{n}/Conv_output_0", values(n, 24)) for n in range(4)]
    numbered = [Tensor.of(str(n + 1), values(n, 24)) for n in range(4)]
    sides = [Dump([Record("out", 0, n, "", tensor) for n, tensor in enumerate(side)]) for side in (numbered, model)]
    assert not compare(*sides).rows and len(compare(*sides, match_by_value=True).rows) == 4


# Look-alikes.


def model(nodes, scope=True) -> Dump:
    """Return the run of a model; ``nodes``: operator, module, tensors read, tensor made, value."""
    told = [
        (f"{module and '/' + module}/{kind}" if scope else kind, kind, list(read), [made], "", {})
        for kind, module, read, made, _ in nodes
    ]
    records = [Record("out", 0, index, node[0], Tensor.of(node[3], node[4])) for index, node in enumerate(nodes)]
    return Dump(records, "npz", network=lambda: of_nodes(records, told))


def pairs(sample: Dump, benchmark: Dump) -> dict[str, str]:
    return {row.name: row.sample_name for row in compare(sample, benchmark).rows}


@pytest.mark.parametrize("broken", [1, 10, 0])
def test_branches_in_another_order_are_told_apart_by_values(broken: int) -> None:
    """Even if one of them is wrong by a factor."""
    x, left, right, both = (values(number, 96).reshape(1, 4, 4, 6) for number in range(4))
    benchmark = model(
        [
            ("Relu", "in", ["data"], "x", x),
            ("Conv", "left", ["x"], "l", left),
            ("Conv", "right", ["x"], "r", right),
            ("Mul", "", ["l", "r"], "m", both),
        ]
    )
    sample = model(
        [
            ("RELU", "", ["data"], "0", x),
            ("CONV_2D", "", ["0"], "1", right),
            ("CONV_2D", "", ["0"], "2", left * np.float32(broken)),
            ("MUL", "", ["2", "1"], "3", both),
        ],
        scope=False,
    )
    assert pairs(sample, benchmark) == {"x": "0", "l": "2", "r": "1", "m": "3"}
    assert pairs(benchmark, sample) == {"0": "x", "2": "l", "1": "r", "3": "m"}


def test_an_activation_that_one_side_fuses_is_not_a_later_one() -> None:
    made = [values(number, 96).reshape(1, 4, 4, 6) for number in range(5)]
    benchmark = model(
        [
            ("Conv", "a", ["data"], "c0", made[0]),
            ("Relu", "b", ["c0"], "r0", made[1]),
            ("Conv", "c", ["r0"], "c1", made[2]),
            ("Add", "", ["r0", "c1"], "s", made[3]),
            ("Relu", "d", ["s"], "r1", made[4]),
        ]
    )
    sample = model(
        [
            ("CONV_2D", "", ["data"], "1", made[1]),
            ("CONV_2D", "", ["1"], "2", made[2]),
            ("ADD", "", ["1", "2"], "3", made[3]),
            ("RELU", "", ["3"], "4", made[4]),
        ],
        scope=False,
    )
    for one in (pairs(sample, benchmark), {b: a for a, b in pairs(benchmark, sample).items()}):
        assert {name: one[name] for name in ("c1", "s", "r1")} == {"c1": "2", "s": "3", "r1": "4"}
        assert "r0" not in one or one["r0"] == "1"


def test_an_operator_outside_all_modules_is_no_operator_of_a_module() -> None:
    """The Add of a module comes first in the dump without modules."""
    made = [values(number, 96).reshape(1, 4, 4, 6) for number in range(4)]
    kinds = [("Abs", "a", ["data"], "0"), ("Add", "a", ["0", "0"], "1"), ("Neg", "a", ["1"], "2")]
    kinds += [("Add", "", ["2", "0"], "3")]
    benchmark = model([(*kind, value) for kind, value in zip(kinds, made)])
    sample = model(
        [(k.upper(), "", [f"t{r}" for r in reads], f"t{name}", v) for (k, _, reads, name), v in zip(kinds, made)], False
    )
    assert pairs(sample, benchmark) == {"0": "t0", "1": "t1", "2": "t2", "3": "t3"}


def test_order_alone_makes_no_pair() -> None:
    """Names without a graph against a graph without modules: neither shows which operators correspond."""
    made = [values(number, 96).reshape(1, 4, 4, 6) for number in range(4)]
    graph = model([("CONV_2D", "", [str(n)], str(n + 1), value) for n, value in enumerate(made[1:])], scope=False)
    bare = Dump([Record("out", 0, n, "", Tensor.of(f"/m{n}/Conv_output_0", value)) for n, value in enumerate(made)])
    assert not pairs(graph, bare)
    assert len(compare(graph, bare, match_by_value=True).rows) == 3


def test_names_decide_if_only_one_dump_has_a_network() -> None:
    """A program tree against a dump with the same names; one tensor more makes the names differ."""
    from sgsdump.dumps.dump import Operator

    names = [f"/block{a}/x{b}" for a in range(2) for b in range(2)]
    records = [Record("out", 0, n, "Conv", Tensor.of(name, values(n, 24))) for n, name in enumerate(names)]
    operators = {n: Operator(name[1:].replace("/", "."), "Conv") for n, name in enumerate(names)}
    tree = Dump(records, "atb_tree", network=lambda: operators)
    for kind in ("", "Conv", "/block0/x0/Conv"):
        bare = [Record("out", 0, n, kind, record.tensor) for n, record in enumerate(records)]
        bare.append(Record("out", 0, 9, kind, Tensor.of("/more/y", values(9, 24))))
        assert pairs(tree, Dump(bare)) == dict(zip(names, names)), kind


# TFLite.


def dumped(model_file: Path, folder: Path, layout: str = "NCHW") -> Dump:
    pytest.importorskip("ai_edge_litert", reason="LiteRT (the extra tflite) is not installed")
    data = np.random.default_rng(1).normal(size=(1, 3, 8, 12)).astype(np.float32)
    np.save(folder / "data.npy", data if layout == "NCHW" else data.transpose(0, 2, 3, 1))
    target = folder / f"{model_file.name}.bin"
    assert main(["dump", "-m", str(model_file), "-i", str(folder / "data.npy"), "-o", str(target)]) == 0
    return open_dump(target)


def apart(sample: np.ndarray, benchmark: np.ndarray) -> float:
    """Return the relative distance in the better layout, by numpy alone."""
    forms = [sample] if sample.ndim < 4 else [sample, sample.transpose(0, 2, 3, 1), sample.transpose(0, 3, 1, 2)]
    return min(float(np.linalg.norm(f.ravel() - benchmark.ravel()) / np.linalg.norm(benchmark)) for f in forms)


@pytest.mark.parametrize("kind, most", [("float32", 1e-5), ("int8", 0.05)])
def test_a_model_of_onnx2tf_pairs_with_its_onnx_model(tmp_path: Path, kind: str, most: float) -> None:
    sample = dumped(TFLITE / f"{kind}.tflite", tmp_path, "NHWC")
    benchmark = dumped(TFLITE / "net.onnx", tmp_path)
    found = compare(sample, benchmark)
    assert len(found.rows) == 17 and {row.paired for row in found.rows} == {"place in the dataflow"}
    for row in found.rows:
        assert apart(sample[row.sample_name].real(), benchmark[row.name].real()) < most, row.name
    # Every tensor of the TFLite model is compared, except copies in another layout and rescaled codes.
    left = {each.record.name for each in found.only_in_sample}
    assert all("transpose" in name or name.endswith("Sigmoid1") for name in left)
    assert not found.completeness.missing


def test_a_changed_weight_is_named_with_the_figures_of_numpy(tmp_path: Path) -> None:
    shutil.copy(TFLITE / "net.onnx", tmp_path / "changed.onnx")
    proto = onnx.load(tmp_path / "changed.onnx")
    layer = "/res1/conv/Conv_output_0"
    node = next(node for node in proto.graph.node if layer in node.output)
    weight = next(each for each in proto.graph.initializer if each.name == node.input[1])
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 1.5, weight.name))
    onnx.save(proto, tmp_path / "changed.onnx")
    sample, benchmark = dumped(TFLITE / "float32.tflite", tmp_path, "NHWC"), dumped(tmp_path / "changed.onnx", tmp_path)
    found = compare(sample, benchmark)
    row = found[layer]
    difference = sample[row.sample_name].real().astype(np.float64) - benchmark[layer].real()
    assert row.mse == pytest.approx(np.mean(difference**2), rel=1e-6)
    assert layer in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
