"""Models of .sim files compute what the SDK's own simulators dumped of them."""

from pathlib import Path

import numpy as np
import pytest
from sim_files import GOLDEN, dump_of, float_inputs, raw_inputs, unpacked

from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.simulation import Simulator
from sgsdump.fixedpoint.sim.file import read
from sgsdump.fixedpoint.sim.onnx_graph import planned_types
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.model import graph_inputs, open_model

BESIDE = Path(__file__).resolve().parents[4] / "shared/data/sigmastar/sim"
OTHERS = sorted(path.parent.name for path in BESIDE.glob("*/float.sim.xz"))
# The SDK's float simulator passes the tensor on where its converter left a Sub of a constant.
FLOAT_ODDITIES = {"zp_sub"}
# What a Softmax puts out is declared in another order of axes: the SDK reads memory with the padding of another shape.
FIXED_ODDITIES = {"ox_softmax_conv"}


def _folder_of_dumps(shared, name):
    return shared / f"sigmastar/{'sim' if name in GOLDEN else 'probes3'}/{name}"


def _dump(shared, name, kind, tmp_path):
    folder = _folder_of_dumps(shared, name)
    path = next((folder / each for each in (f"{kind}.bin.xz", f"{kind}.bin") if (folder / each).exists()), None)
    if path is None:
        pytest.skip(f"the SDK dumped no {kind} model of {name}")
    return dump_of(path, tmp_path)


def _key(record):
    return record.io, record.slot, record.op_index, record.op_type, record.name, record.constant


@pytest.mark.parametrize("name", [*GOLDEN, *OTHERS])
def test_float_sim_gives_the_sdks_float_dump(shared, tmp_path, name):
    model = simplify(open_model(unpacked(shared / f"sigmastar/sim/{name}/float.sim.xz", tmp_path)))
    dump = _dump(shared, name, "float", tmp_path)
    ours = list(Simulator(model).run(float_inputs(model, dump)).records)
    assert list(map(_key, ours)) == list(map(_key, dump.records))
    if name in FLOAT_ODDITIES:
        return
    for own, theirs in zip(ours, dump.records):
        if own.io == "out" or own.constant:
            expected = theirs.tensor.raw().reshape(-1).astype(np.float64)
            error = np.sqrt(np.mean((own.tensor.stored().reshape(-1) - expected) ** 2))
            assert error <= 1e-5 * max(np.sqrt(np.mean(expected**2)), 1e-30), own.name


@pytest.mark.parametrize("name", [*GOLDEN, *OTHERS])
def test_fixed_sim_gives_every_integer_of_the_sdks_fixed_dump(shared, tmp_path, name):
    path = unpacked(shared / f"sigmastar/sim/{name}/fixed.sim.xz", tmp_path)
    dump = _dump(shared, name, "fixed", tmp_path)
    model = open_model(path)
    feed = raw_inputs(_folder_of_dumps(shared, name), model)
    simulation = Simulator(model, dequantise=False, strip=True).run(feed)
    ours = list(simulation.records)
    assert list(map(_key, ours)) == list(map(_key, dump.records))
    for own, theirs in zip(ours, dump.records):
        if own.io == "out" and name not in FIXED_ODDITIES:
            assert own.tensor.dtype == theirs.tensor.dtype
            np.testing.assert_array_equal(own.tensor.stored().reshape(-1), theirs.tensor.raw().reshape(-1), own.name)
        if own.constant and own.name not in _weights(model):
            np.testing.assert_array_equal(own.tensor.stored().reshape(-1), theirs.tensor.raw().reshape(-1), own.name)


def _weights(model):
    facts = read_facts(model)
    return {
        *(weights.name for weights in facts.weights.values()),
        *facts.weights,
        *facts.biases,
        *facts.biases.values(),
    }


@pytest.mark.parametrize("name", [*GOLDEN, *OTHERS])
def test_the_types_are_those_that_float_sim_plans(shared, tmp_path, name):
    path = unpacked(shared / f"sigmastar/sim/{name}/float.sim.xz", tmp_path)
    model, planned = simplify(open_model(path)), planned_types(read(path))
    pictures = [spec.name for spec in graph_inputs(model.proto) if str(planned.get(spec.name)) == "uint8"]
    analysis = analyse(model.proto, pictures)
    read_by_convolutions = {analysis.domain[name] for name in analysis.first_inputs if name not in analysis.forced}
    for tensor in analysis.stored:
        if tensor in planned and str(planned[tensor]) == "uint8":
            assert tensor not in analysis.forced
        elif tensor in planned:
            assert analysis.domain[tensor] not in read_by_convolutions or tensor in analysis.forced


def test_a_converted_model_is_the_same_model(shared, tmp_path):
    from sgsdump.cli import main

    path = unpacked(shared / "sigmastar/sim/att/float.sim.xz", tmp_path)
    assert main(["convert", str(path), str(tmp_path / "net.onnx")]) == 0
    dump = _dump(shared, "att", "float", tmp_path)
    models = [simplify(open_model(each)) for each in (path, tmp_path / "net.onnx")]
    records = [list(Simulator(model).run(float_inputs(model, dump)).records) for model in models]
    assert list(map(_key, records[0])) == list(map(_key, records[1]))
    for one, other in zip(*records):
        np.testing.assert_array_equal(one.tensor.stored(), other.tensor.stored())
