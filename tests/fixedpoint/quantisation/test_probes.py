"""Our float and fixed models of small Caffe networks against the vendor's dumps of them, operator by operator.

The networks were made to show one kind of operator each (``tests/golden/README.md``). UINT8 layers are compared as they
are stored: never more than one step away. INT16 layers inherit these steps, so their values are compared.
"""

from dataclasses import replace

import numpy as np
import pytest

from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.sidecars import input_config
from sgsdump.sidecars.tensor_min_max import read_ranges

# How many tensors are common with the vendor's dump, whose converter splits some operators in two.
NETS = {"a_first": 7, "e_add": 8, "h_fc": 6, "l_prelu": 5, "m_dil": 5, "n_soft": 3, "p_up": 4, "q_slice": 6}
# The vendor's scale of a Softmax's input holds softmax_lut_range.txt's minimum as well (-10.44); ours stops at -10.
OTHER_SCALE = ("n_soft", "a")


def net(shared, name):
    folder = shared / "sigmastar/probes" / name
    config = input_config.read(folder / "input_config.ini")
    model = open_float_model(folder / "net.prototxt", folder / "net.caffemodel", config)
    return folder, config, model


def outputs(model, picture, **how):
    feed = {"data": np.ascontiguousarray(picture.transpose(2, 0, 1)[None], np.float32)}
    return {r.name: r.tensor for r in simulate(model, feed, **how).records if r.io == "out"}


@pytest.mark.parametrize("name", NETS)
def test_float_layers_are_the_vendors(shared, name):
    folder, _, model = net(shared, name)
    ours = outputs(model, (np.load(folder / "input.npy") - 127) / 128)
    vendor = open_dump(folder / "float.bin")
    common = [layer for layer in vendor if layer in ours]
    assert len(common) >= NETS[name]
    for layer in common:
        wanted = vendor[layer].real().reshape(-1)
        assert np.abs(ours[layer].real().reshape(-1) - wanted).max() <= 1e-6 * np.abs(wanted).max(), layer


@pytest.mark.parametrize("name", NETS)
def test_fixed_layers_are_the_vendors(shared, name):
    folder, config, model = net(shared, name)
    fixed = make_fixed(model, read_ranges(folder / "tensor_min_max.txt"), config)
    ours = outputs(replace(model, proto=fixed.proto), np.round(np.load(folder / "input.npy")), dequantise=False)
    vendor = open_dump(folder / "fixed.bin")
    lines = (line.split("\t") for line in (folder / "scales.tsv").read_text().splitlines()[1:])
    scales = {layer: float(scale) for layer, scale, *_ in lines}
    common = [layer for layer in vendor if layer in ours]
    assert len(common) == NETS[name]
    for layer in common:
        quant = ours[layer].info.quant
        assert ours[layer].info.dtype == vendor[layer].info.dtype, layer
        a, v = (x[layer].stored().reshape(-1).astype(np.float64) for x in (ours, vendor))
        if quant.dtype == np.uint8:
            assert np.abs(a - v).max() <= 1 and np.mean(a == v) >= 0.9, layer
        a, v = a - quant.zero_point, v - vendor[layer].info.quant.zero_point
        if (name, layer) != OTHER_SCALE:
            assert quant.scale == pytest.approx(scales[layer], rel=2e-6), layer
        a, v = a * quant.scale, v * scales[layer]
        assert a @ v / np.sqrt((a @ a) * (v @ v)) >= 0.9999, layer
        assert np.abs(a - v).sum() / np.abs(v).sum() <= 0.01, layer


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("file", ["float.bin", "fixed.bin"])
def test_dumps_saved_again_are_the_same_bytes(shared, tmp_path, name, file):
    path = shared / "sigmastar/probes" / name / file
    save_dump(open_dump(path), tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()
