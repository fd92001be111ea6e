"""Random chains of layers in place, whatever the network calls its layers and blobs: no name of the model with the
SDK's stages collides, nor one of the fixed model, and both compute."""

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from hypothesis import assume, given
from hypothesis import strategies as st
from models.caffe.layer_list import Layer, random_weights, text_of
from models.caffe.nets import save
from small_nets import run_all

from sgsdump.fixedpoint.quantisation.fixed_model import check_that_it_runs, make_fixed
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.models.model import open_model, read_stages
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.stages import last_of_table

CHANNELS, SIZE = 4, 4
NAMES = (
    *("a", "b", "a_xx", "a_xx_xx", "b_xx", "a@b", "a#1", "a#0", "a'", "a_MUL", "b_MUL_output", "a_MUL_output"),
    *("a_filter", "a_bias", "a_scale", "a_offset", "a_weight", "a_alpha", "a_const", "b_reshape_output_shape"),
    *("a/flatten", "b/flatten", "a/mul", "a#stored", "a#rows", "data#stored", "b#float", "a_filter#int8", "#"),
    *(
        "a#constant1",
        "a#0#stored",
        "a##stored",
        "data",
        "Cast:a",
        "a#bias",
        "a#real",
        "a#within",
        "a#scale",
        "a_xx#float64",
    ),
)
IN_PLACE = ("BatchNorm", "BatchNorm", "Scale", "Scale+", "ReLU", "PReLU", "Dropout", "Power", "Square")
WITH_WEIGHTS = ("Convolution", "InnerProduct", "BatchNorm", "Scale", "Scale+", "PReLU")


@st.composite
def chains(draw):
    """Layers of a net whose input is ``data``, and blobs that are outputs beside those that nothing reads."""
    shapes = {"data": (CHANNELS, SIZE, SIZE)}
    layers, last = [], "data"
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(
            st.sampled_from((*IN_PLACE, *IN_PLACE, "Convolution", "InnerProduct", "Pooling", "Eltwise", "Concat"))
        )
        if kind in ("Convolution", "Pooling") and len(shapes[last]) != 3:
            kind = "InnerProduct"
        bottom = last if draw(st.integers(0, 4)) else draw(st.sampled_from(sorted(shapes)))
        if kind in ("Convolution", "Pooling") and len(shapes[bottom]) != 3:
            bottom = last
        free = [name for name in NAMES if name not in shapes]
        top = draw(st.sampled_from(free)) if kind not in IN_PLACE or not draw(st.integers(0, 3)) else bottom
        bottoms, shape, layer_shapes, params = [bottom], shapes[bottom], [], ""
        count = shape[0]
        if kind == "Convolution":
            params = f"convolution_param {{ num_output: {CHANNELS} kernel_size: 1 bias_term: {draw(BOOLS)} }}"
            layer_shapes = [(CHANNELS, count, 1, 1), *[(CHANNELS,)] * ("true" in params)]
            shape = (CHANNELS, *shape[1:])
        elif kind == "InnerProduct":
            params = f"inner_product_param {{ num_output: {CHANNELS} bias_term: {draw(BOOLS)} }}"
            layer_shapes = [(CHANNELS, int(np.prod(shape))), *[(CHANNELS,)] * ("true" in params)]
            shape = (CHANNELS,)
        elif kind == "Pooling":
            params = (
                "pooling_param { pool: MAX kernel_size: 2 stride: 1 }"
                if shape[1] > 1
                else "pooling_param { kernel_size: 1 }"
            )
            shape = (count, *[max(1, size - 1) for size in shape[1:]])
        elif kind in ("Eltwise", "Concat"):
            other = draw(st.sampled_from([n for n in sorted(shapes) if shapes[n] == shape]))
            bottoms = [bottom, other]
            shape = (2 * count, *shape[1:]) if kind == "Concat" else shape
        elif kind == "BatchNorm":
            params, layer_shapes = "batch_norm_param { use_global_stats: true }", [(count,), (count,), (1,)]
        elif kind == "Scale+":
            params, layer_shapes = "scale_param { bias_term: true }", [(count,), (count,)]
        elif kind in ("Scale", "PReLU"):
            layer_shapes = [(count,)]
        elif kind in ("Power", "Square"):
            params = f"power_param {{ power: {1 if kind == 'Power' else 2} scale: 0.5 shift: 0.25 }}"
        weighted = kind in WITH_WEIGHTS
        names = [n for n in NAMES if not any(n == each.name and (weighted or each.shapes) for each in layers)]
        kind = {"Scale+": "Scale", "Square": "Power"}.get(kind, kind)
        layers.append(Layer(kind, draw(st.sampled_from(names)), bottoms, [top], params, layer_shapes))
        shapes[top], last = shape, top
    assume(any(layer.type != "Dropout" for layer in layers))  # what computes nothing is refused
    made = sorted({top for layer in layers for top in layer.tops})
    return layers, draw(st.lists(st.sampled_from(made), max_size=2, unique=True))


BOOLS = st.sampled_from(("true", "false"))


def feed_of(seed=0):
    values = np.random.default_rng(seed).uniform(-1, 1, (1, CHANNELS, SIZE, SIZE))
    return {"data": values.astype(np.float32)}


def once(names):
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    assert not twice, twice


def check(proto):
    """By onnx, and every name of a node and of a tensor once."""
    onnx.checker.check_model(proto, full_check=True)
    once(node.name for node in proto.graph.node)
    tensors = [tensor.name for tensor in (*proto.graph.input, *proto.graph.initializer)]
    once([*tensors, *(name for node in proto.graph.node for name in node.output)])


@given(chains())
def test_stages_compute_what_pycaffe_shows(chain):
    layers, outputs = chain
    with tempfile.TemporaryDirectory() as folder:
        files = save(Path(folder), text_of({"data": (1, CHANNELS, SIZE, SIZE)}, layers), random_weights(layers))
        plain, staged = open_model(*files), open_model(*files, staged_outputs=outputs)
    check(plain.proto)
    check(staged.proto)
    table = read_stages(staged.proto)
    once(stage.name for stage in table)
    assert all(stage.blob and stage.layer for stage in table)
    blobs, stages = run_all(plain.proto, feed_of()), run_all(staged.proto, feed_of())
    assert {stage.name for stage in table} <= {*stages, "data", ""}
    last = {blob: name for blob, name in last_of_table(table).items() if name}
    assert {last[blob] for blob in last if blob in outputs} <= {info.name for info in staged.proto.graph.output}
    for blob in last.keys() & plain.blobs & blobs.keys() - {"data"}:
        np.testing.assert_allclose(stages[last[blob]], blobs[blob], rtol=1e-4, atol=1e-4, err_msg=blob)


@given(chains(), st.booleans())
def test_the_fixed_model_loads_and_runs(chain, fuse):
    layers, outputs = chain
    with tempfile.TemporaryDirectory() as folder:
        files = save(Path(folder), text_of({"data": (1, CHANNELS, SIZE, SIZE)}, layers), random_weights(layers))
        model = open_model(*files, staged_outputs=outputs)
    config = InputConfig(())
    ranges = measure_ranges(model, [("0", feed_of())], fuse)
    fixed = make_fixed(model, ranges, config, fuse)
    check(fixed.proto)
    check_that_it_runs(model, fixed.proto, config, feed_of())
    assert read_stages(fixed.proto) == read_stages(model.proto)
    records = simulate(replace(model, proto=fixed.proto), feed_of()).records
    once(record.name for record in records if record.io == "out" and not record.constant)
    if fuse:
        trial = PlanTrial(model, ranges, config)
        once(node.name for node in trial.every_plan.graph.node)
        trial.run((), feed_of())
